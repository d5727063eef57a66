#include "trireme/net/errors.h"

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::net {

std::exception_ptr peer_lost(int rank, int peer, std::string_view operation,
                             std::string_view detail) {
  std::string message = "rank " + std::to_string(peer) + " is gone";
  if (!detail.empty()) message += ": " + std::string(detail);
  return std::make_exception_ptr(PeerLost(
      std::move(message), {.rank = rank,
                           .operation = std::string(operation),
                           .peer = peer,
                           .advice = "Look at the last lines that rank " + std::to_string(peer) +
                                     " printed; the job can resume from its checkpoint."}));
}

std::exception_ptr length_mismatch(int rank, int peer, Tag tag, std::size_t expected,
                                   std::size_t sent) {
  return std::make_exception_ptr(
      MismatchError("expected " + std::to_string(expected) + " bytes, but rank " +
                        std::to_string(peer) + " sent " + std::to_string(sent),
                    {.rank = rank,
                     .operation = "recv",
                     .peer = peer,
                     .label = "tag " + std::to_string(tag.value),
                     .advice = "Make both ranks call the same operation with the same sizes."}));
}

std::exception_ptr closed(int rank) {
  return std::make_exception_ptr(
      PeerLost("this rank's transport was closed while operations were under way",
               {.rank = rank, .operation = "transport", .advice = "Wait for every Work first."}));
}

void check_peer(int peer, int size) {
  TRIREME_CHECK(peer >= 0);
  TRIREME_CHECK(peer < size);
}

}  // namespace trireme::inline v0::net
