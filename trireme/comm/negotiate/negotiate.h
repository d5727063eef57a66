// Negotiator: collectives by name, for programs whose ranks submit them in different orders.
//
// Ranks tell rank 0 what is ready; what is ready everywhere, rank 0 names to all in one order, and
// in that order the collectives run (over groups of the negotiator's own, beside the program's
// other calls). Two messages more than a collective in program order. A name with the same type,
// count and operation as before is known by a number after its first time (the response cache): 7
// bytes.
//
// Submissions may come from any thread. A name is free again when its Work is done. Calls that
// differ under one name fail with MismatchError on every rank that submitted it, and a name that
// somebody does not submit fails at the deadline with TimeoutError, naming who; neither hurts
// anything else. A lost peer fails all that is open. Making and dropping one is collective. (The
// model is the controller of Horovod, Sergeev and Del Balso 2018, arXiv:1802.05799.)
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct NegotiatorOptions {
  std::string name = "negotiated";
  std::size_t cached_names = 4096;  // beyond: names travel every time
};

class Negotiator final {
 public:
  /// Collective over `world`, which must outlive it and gives it its timeout and its watch.
  explicit Negotiator(Communicator& world, const NegotiatorOptions& options = {});
  /// Waits until all ranks let go, or one is lost; what is still open fails with PeerLost.
  ~Negotiator();
  Negotiator(const Negotiator&) = delete;

  /// Buffers must stay valid until the Work is done. ConfigError if `name` is empty, longer than
  /// 400 bytes, or submitted already and not done.
  Work all_reduce(std::string name, Buffer inout, ReduceOp op);
  Work broadcast(std::string name, Buffer inout, int root);
  Work all_gather(std::string name, Buffer in, Buffer out);

  /// Of this rank, since the start.
  struct Statistics {
    std::uint64_t submitted = 0, by_number = 0;  // by_number: the response cache knew it
    std::uint64_t control_bytes = 0;             // sent for it
  };
  Statistics statistics() const;

 private:
  class Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
