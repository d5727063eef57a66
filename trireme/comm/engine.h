// Engine: the implementation of a Communicator. It runs one collective at a time, in call order:
// exchange of headers (fingerprints, and the data itself if it fits), then a backend's Run. Headers
// lie on a board if ranks can map one another's memory (board_watch.h), else they are messages.
//
// The functions under "Any thread" may be called from any thread, all others in the progress
// context of the transport's Waiter. The first error breaks the engine: it aborts the transport, so
// that no buffer is accessed any more, and fails every open and later call, here and in the engines
// of all groups over the same transport (Family).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/calls/call.h"
#include "trireme/comm/calls/call_waits.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/fold_plan.h"
#include "trireme/comm/group_facts.h"
#include "trireme/comm/messages/messages.h"
#include "trireme/comm/scratch.h"
#include "trireme/comm/shared/arenas.h"
#include "trireme/comm/shared/board_watch.h"
#include "trireme/comm/staging/staged_calls.h"
#include "trireme/comm/trace/call_trace.h"

namespace trireme::inline v0::comm {

/// The error that broke an engine. Any thread.
class Failure {
 public:
  bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Null unless broken().
  std::exception_ptr error() const noexcept { return broken() ? error_ : nullptr; }
  /// Progress context. False if there was an error before.
  bool set(const std::exception_ptr& error) noexcept {
    if (broken()) return false;
    error_ = error;
    broken_.store(true, std::memory_order_release);
    return true;
  }

 private:
  std::exception_ptr error_;
  std::atomic<bool> broken_{false};
};

/// Counts the transfers with each peer that have not ended.
class OpenTransfers {
 public:
  explicit OpenTransfers(int size) : open_(static_cast<std::size_t>(size)) {}
  void expect(int peer, int change) noexcept { open_[static_cast<std::size_t>(peer)] += change; }
  bool with(int peer) const noexcept { return open_[static_cast<std::size_t>(peer)] > 0; }
  bool any() const noexcept;

 private:
  std::vector<int> open_;
};

/// The engines over one transport: a communicator and all groups made from it. They share its
/// progress; the first failure of one breaks them all with the same error. Progress context.
class Family {
 public:
  /// Breaks `engine` at once if the family is broken already.
  void add(const std::shared_ptr<Engine>& engine);
  /// Breaks all engines; the first error wins.
  void fail(const std::exception_ptr& error) noexcept;

 private:
  std::vector<std::weak_ptr<Engine>> members_;
  std::exception_ptr failure_;
};

class Engine final : public std::enable_shared_from_this<Engine> {
 public:
  /// Collective, but does not wait for the peers. Null `family`: the engine heads a new one.
  static std::shared_ptr<Engine> create(std::shared_ptr<net::Transport> transport,
                                        CommunicatorOptions options,
                                        std::shared_ptr<Family> family = nullptr);
  Engine(std::shared_ptr<net::Transport> transport, CommunicatorOptions options,
         std::shared_ptr<Family> family);
  ~Engine();

  // Any thread:
  Work submit(Operation&& operation, Deadline deadline);
  Arena allocate(std::size_t bytes, Device device);
  /// The engine of a new group of `ranks`.
  std::shared_ptr<Engine> group(std::vector<int> ranks, std::string name);
  void abort(std::exception_ptr error) noexcept;
  /// Detaches from the Waiter. If this engine heads the family, all open calls of the family fail.
  /// If it is a group's, they fail only if the user has open calls on this engine.
  void close() noexcept;

  /// All ranks have made the running call; `payloads`: what their headers carry.
  void on_agreed(const std::shared_ptr<Call>& call, std::span<const std::byte* const> payloads);
  /// The running call has ended, or a step of it.
  void finish(const std::shared_ptr<Call>& call);
  /// The buffers that the call sends have been copied to the host's memory.
  void begin_staged(const std::shared_ptr<Call>& call);
  /// The device's stream holds the whole running call: the next one may begin.
  void given_to_device();
  /// Breaks the engine. Adds this rank, and operation and label of `about` (null: of the first open
  /// collective), to the error.
  void fail(std::exception_ptr error, const Operation* about = nullptr) noexcept;
  /// A send to or receive from `peer` failed. Perhaps the peer left because the calls differ, which
  /// this rank has not seen yet; then the mismatch is reported instead of the lost peer.
  void transfer_failed(int peer, const std::exception_ptr& error) noexcept;
  /// Breaks the engine with `error`, unchanged; called for errors of other engines of the family.
  void break_with(const std::exception_ptr& error) noexcept;

  bool has_board() const noexcept { return arenas && arenas->board(); }
  Board& board() noexcept { return *arenas->board(); }

  // Shared by the backends and the parts of the engine. Any thread may use the first four,
  // `failure` and `device`, and may ask whether there are arenas.
  const std::shared_ptr<net::Transport> transport;
  const std::shared_ptr<Waiter> waiter;
  const GroupFacts facts;
  CallWaits waits;
  Failure failure;
  std::shared_ptr<DeviceBackend> device;  // null: CPU memory only
  std::shared_ptr<DeviceCopies> copies;   // null: no staging; set before its first use
  std::shared_ptr<StagedCalls> staged;
  std::unique_ptr<Arenas> arenas;           // null if ranks cannot map one another's memory
  std::shared_ptr<BoardWatch> board_watch;  // null without arenas
  std::unique_ptr<CallTrace> trace;         // null: off
  CallQueue queue;
  Messages messages;
  OpenTransfers transfers;
  FoldPlans fold_plans;
  Scratch scratch;
  std::shared_ptr<Engine> self;  // keeps this alive while it leaves

 private:
  net::Region share(const std::function<net::Region()>& allocate);
  void enqueue(std::shared_ptr<Call> call);
  void pump();
  void begin(const std::shared_ptr<Call>& call);
  void leave() noexcept;
  void retire() noexcept;

  std::vector<std::unique_ptr<Backend>> backends_;  // for CPU memory, in the order to ask them
  const std::shared_ptr<Family> family_;
  std::mutex mutex_;                                       // made_
  std::unordered_map<std::uint64_t, std::uint64_t> made_;  // groups, by name and ranks
  std::uint64_t id_ = 0;                                   // of this group; the head: 0
  bool pumping_ = false;
  bool watching_ = false;  // the Waiter polls board_watch
  bool leaving_ = false;   // closed; the queue holds only set-up that peers still need
};

}  // namespace trireme::inline v0::comm
