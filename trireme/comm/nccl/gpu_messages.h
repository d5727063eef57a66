// GpuMessages: messages between two ranks over NCCL, for a GpuGroup. NCCL has no tags, so sender
// and receiver must agree on an order. Messages in opposite directions must not wait for one
// another, so each direction of a pair has a lane (a communicator of two ranks and a stream), made
// with the first message.
//
//     sender    -> header -> receiver    over the transport, with the user's tag
//     receiver  -> answer -> sender      the message's number and the lane's NCCL id
//
// The receiver numbers messages in the order in which headers match its receives, and passes its
// receives to the lane in this order. The sender passes its sends to the lane by these numbers.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "trireme/comm/nccl/lane.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

struct Call;

namespace nccl {

class GpuGroup;

class GpuMessages {
 public:
  /// A part of `group`.
  explicit GpuMessages(GpuGroup& group) : group_(group) {}
  /// Runs the user's send, whose own header is filled in and has `tag`.
  void send(const std::shared_ptr<Call>& call, int peer, net::Tag tag);
  /// Goes on with a receive, whose matching header has arrived with `tag`.
  void answer(const std::shared_ptr<Call>& call, int peer, net::Tag tag);
  void forget_lanes() noexcept { pairs_.clear(); }
  /// Forgets the lanes, and ends the sends that are in no lane.
  void abort(const std::exception_ptr& error) noexcept;

 private:
  struct Answer;
  struct Pair {  // the messages to, or from, one peer
    std::shared_ptr<Lane> lane;
    NcclId id{};
    std::uint64_t next = 0;                                // number of the next message
    std::map<std::uint64_t, std::shared_ptr<Call>> early;  // sends whose predecessors are missing
  };

  void give(const std::shared_ptr<Call>& call, int peer, Pair& pair, int own);
  bool went_well(const std::shared_ptr<Call>& call, const std::exception_ptr& error);

  GpuGroup& group_;
  std::map<std::pair<int, bool>, Pair> pairs_;  // by peer and whether this rank sends
};

}  // namespace nccl
}  // namespace trireme::inline v0::comm
