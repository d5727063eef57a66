// Engine: the implementation of a Communicator. It runs one collective at a time, in call order:
// exchange of headers (fingerprints, and the data itself if it fits), then a backend's Run. Headers
// are messages, or lie on a board if ranks can map one another's memory (engine_board.cc).
//
// submit, allocate, abort and the accessors may be called from any thread; everything else runs in
// the progress context of the transport's Waiter. The first error breaks the engine: it aborts the
// transport, so that no buffer is accessed any more, and fails every open and later call, here and
// in the engines of all groups over the same transport (family.h).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/call_trace.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/family.h"
#include "trireme/comm/operation.h"
#include "trireme/comm/scratch.h"
#include "trireme/comm/shared/arenas.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {

/// The purpose of a message. Tags hold nothing else: operations run in the same order on all ranks,
/// so messages between two ranks need no number.
enum class Channel : std::uint32_t { Header, Data, Device };
net::Tag tag_of(Channel channel) noexcept;

/// The terms of a sum that each rank brings, and the additions that fold all of them.
struct FoldPlan {
  std::vector<std::vector<kernel::LeafRange>> nodes_of;  // per rank
  std::vector<kernel::FoldStep> steps;
  std::size_t most_terms = 1;  // the maximum over the ranks
};

FoldPlan make_fold_plan(std::uint32_t total, int size);

struct Call {
  explicit Call(Operation&& called) : operation(std::move(called)) {}
  /// Ends the Work, or what submit() will return if it has not made the Work yet.
  void end(const std::exception_ptr& error = nullptr);

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

class Engine final : public WorkOwner, public std::enable_shared_from_this<Engine> {
 public:
  /// Collective, but does not wait for the peers. Null `family`: the engine heads a new one.
  static std::shared_ptr<Engine> create(std::shared_ptr<net::Transport> transport,
                                        CommunicatorOptions options,
                                        std::shared_ptr<Family> family = nullptr);
  Engine(std::shared_ptr<net::Transport> transport, CommunicatorOptions options,
         std::shared_ptr<Family> family);
  ~Engine() override;

  /// The engine of a group of `ranks`. `id` separates the group's messages from others.
  std::shared_ptr<Engine> group(std::vector<int> ranks, std::string name, std::uint64_t id);
  /// A new id for such a group, the same on all its members. Any thread.
  std::uint64_t group_id(std::span<const int> ranks, std::string_view name);

  Work submit(Operation&& operation, Deadline deadline);
  Arena allocate(std::size_t bytes, Device device);
  void abort(std::exception_ptr error) noexcept;
  /// Detaches from the Waiter. If this engine heads the family, all open calls of the family fail.
  /// If it is a group's, they fail only if the user has open calls on this engine.
  void close() noexcept;
  std::exception_ptr failure() const noexcept;
  Duration time_waited() const noexcept { return Duration(waited_.load()); }
  const CommunicatorOptions& options() const noexcept { return options_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Number of each rank's host; empty if unknown.
  const std::vector<int>& hosts() const noexcept { return hosts_; }
  /// True if ranks can map one another's arenas.
  bool can_map() const noexcept { return arenas_ != nullptr; }
  /// Null: this communicator moves CPU memory only.
  DeviceBackend* device() const noexcept { return device_.get(); }

  // In the progress context:
  net::Transport& transport() noexcept { return *transport_; }
  Scratch& scratch() noexcept { return scratch_; }
  const CallTrace* trace() const noexcept { return trace_.get(); }
  Arenas& arenas() noexcept { return *arenas_; }
  Board& board() noexcept { return *arenas_->board(); }
  const FoldPlan& fold_plan(std::uint32_t total);
  void finish(const std::shared_ptr<Call>& call);
  /// The device's stream holds the whole running call: the next one may begin.
  void given_to_device();
  void ended_on_device(const std::shared_ptr<Call>& call);
  /// MismatchError if the received header differs from the receive's own; else null.
  std::exception_ptr message_mismatch(const Call& call, int peer) const;
  void message_ended(const std::shared_ptr<Call>& call, int peer);
  /// Breaks the engine. Adds rank, operation and label of the first open call to the error.
  void fail(std::exception_ptr error) noexcept;
  /// A send to or receive from `peer` failed. Perhaps the peer left because the calls differ, which
  /// this rank has not seen yet; then the mismatch is reported instead of the lost peer.
  void transfer_failed(int peer, const std::exception_ptr& error) noexcept;
  /// Breaks the engine with `error` as it is; called for errors of other engines of the family.
  void break_with(const std::exception_ptr& error) noexcept;
  /// The world's number of `rank`, which errors print.
  int world_rank(int rank) const noexcept;
  /// How many user threads are blocked in a wait for this engine.
  int waits() const noexcept { return user_waits_.load(std::memory_order_relaxed); }
  /// " in group rows"; empty for the head of the family.
  std::string group_text() const;
  bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  void expect(int peer, int change) noexcept { expected_[peer] += change; }
  bool poll();

  // WorkOwner:
  Deadline timeout() const noexcept override { return Deadline::in(options_.timeout); }
  TimePoint on_deadline(TimePoint now, Duration waited) override {
    return on_deadline(now, waited, running_title());
  }
  TimePoint on_deadline(TimePoint now, Duration waited, const std::string& title);
  void on_unseen_failure(std::exception_ptr error) noexcept override { abort(std::move(error)); }
  void on_wait_begin(std::string_view description) noexcept override;
  void on_wait_end(std::string_view description, Duration waited) noexcept override;

 private:
  class Poller;
  enum class Waits { No, Headers, Run };

  void set_up();
  void run_and_wait(const std::function<void()>& task);
  void announce(const net::Region& region);
  WorkSource source_of(const Operation& operation, Deadline deadline);
  void enqueue(std::shared_ptr<Call> call);
  void pump();
  void begin(const std::shared_ptr<Call>& call);
  std::shared_ptr<Run> run_of(const std::shared_ptr<Call>& call);
  void exchange_headers(const std::shared_ptr<Call>& call);
  void post_header(const std::shared_ptr<Call>& call);
  bool nothing_new() noexcept;
  int headers_here(std::uint64_t number) noexcept;
  bool look();
  void look_briefly(const Call& call);
  bool poll_headers(const std::shared_ptr<Call>& call);
  int check_headers_here(const Call& call);
  void wait_for(Waits what) noexcept;
  void on_envelopes(const std::shared_ptr<Call>& call);
  void on_agreed(const std::shared_ptr<Call>& call, std::span<const std::byte* const> payloads);
  bool goes_on(Call& call);
  bool check_header(const Call& call, int peer, const Header& other);
  void run_point_to_point(const std::shared_ptr<Call>& call);
  std::exception_ptr timeout_error(Duration waited, const PeerWatch::Verdict& verdict,
                                   const std::string& title);
  bool owes(int peer);
  void leave() noexcept;
  void retire() noexcept;
  std::exception_ptr with_context(std::exception_ptr error) const noexcept;
  std::string running_title() const;
  const Operation* first_user_call() const noexcept;

  const std::shared_ptr<net::Transport> transport_;
  const CommunicatorOptions options_;
  const std::shared_ptr<Waiter> waiter_;
  const int rank_, size_;
  const std::vector<int> hosts_;    // number of each rank's host; empty if unknown
  std::unique_ptr<Arenas> arenas_;  // null if the ranks cannot map one another's memory
  std::shared_ptr<ProgressSource> poller_;
  std::atomic<bool> pending_{false};
  Waits waits_ = Waits::No;
  int headers_seen_ = 0;  // of the running call

  std::shared_ptr<DeviceBackend> device_;           // null: CPU memory only
  std::vector<std::unique_ptr<Backend>> backends_;  // for CPU memory, in the order to ask them
  std::unique_ptr<CallTrace> trace_;                // null = off
  Scratch scratch_;
  std::map<std::uint32_t, std::unique_ptr<FoldPlan>> fold_plans_;
  const std::shared_ptr<Family> family_;
  const bool head_;                                        // of the family
  std::unordered_map<std::uint64_t, std::uint64_t> made_;  // groups, by name and ranks; mutex_
  std::uint64_t id_ = 0;                                   // of this group; the head: 0
  std::deque<std::shared_ptr<Call>> queue_;                // front: running
  bool running_ = false, pumping_ = false;
  int open_messages_ = 0;         // the user's sends and receives
  bool leaving_ = false;          // closed; the queue holds only set-up that peers still need
  std::shared_ptr<Engine> self_;  // keeps this alive while leaving_
  std::uint64_t calls_ = 0, allocations_ = 0, board_number_ = 0;
  std::vector<int> expected_;  // per peer: transfers with it that have not ended

  mutable std::mutex mutex_;  // failure_, title_, made_
  std::exception_ptr failure_;
  std::string title_;  // of the running call
  std::atomic<bool> broken_{false};
  std::atomic<std::int64_t> waited_{0};
  std::atomic<int> user_waits_{0};
};

}  // namespace trireme::inline v0::comm
