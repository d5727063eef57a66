// Call: an operation on its way through the engine. CallQueue: the calls of a group, of which the
// first runs. Progress context only.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/comm/group_facts.h"
#include "trireme/comm/trace/call_trace.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

/// The purpose of a message. Tags hold nothing else: operations run in the same order on all ranks,
/// so messages between two ranks need no number.
enum class Purpose : std::uint32_t { Header, Data, Device };
net::Tag tag_of(Purpose purpose) noexcept;

struct Call {
  explicit Call(Operation&& called) : operation(std::move(called)) {}
  /// Ends the Work. If there is none yet, submit() returns a Work that has ended.
  void end(const std::exception_ptr& error = nullptr);
  /// Replaces the operation by its next step; false if there is none. Throws what the step throws.
  bool go_on();

  Operation operation;
  std::optional<WorkSource> source = std::nullopt;
  bool ended = false;
  std::exception_ptr failure = nullptr;  // if it has ended
  Envelope own = {};
  std::vector<Envelope> envelopes = {};  // the peers' envelopes, if sent as messages
  std::vector<bool> heard = {};          // per rank: its envelope has arrived
  std::exception_ptr lost = nullptr;     // see Engine::transfer_failed
  bool posting = false;                  // exchange_headers() is posting the transfers
  std::uint64_t number = 0;              // on the board
  bool inlined = false;                  // the headers carry all its data
  CallTimes times = {};                  // if a trace is taken
  std::shared_ptr<Run> run = nullptr;    // null if the headers are enough
};

/// The error if `peer` made another call than this rank's `call`; null if it made the same.
std::exception_ptr mismatch_of(const Call& call, int peer, const Header& other,
                               const GroupFacts& facts);

class CallQueue {
 public:
  bool empty() const noexcept { return calls_.empty(); }
  /// The running call, or the next one.
  const std::shared_ptr<Call>& front() const { return calls_.front(); }
  /// The first call of the user; null if there is none.
  const Operation* first_user_call() const noexcept;
  /// Gives the call its number.
  void push(std::shared_ptr<Call> call);
  /// The next call, which runs from now on; null if one runs already, or none is there.
  std::shared_ptr<Call> start();
  /// The running call has ended, or a step of it: it may start() again.
  void stop() noexcept { running_ = false; }
  void pop() { calls_.pop_front(); }
  std::deque<std::shared_ptr<Call>> take_all() { return std::exchange(calls_, {}); }

 private:
  std::deque<std::shared_ptr<Call>> calls_;
  bool running_ = false;
  std::uint64_t num_calls_ = 0, num_allocations_ = 0;
};

}  // namespace trireme::inline v0::comm
