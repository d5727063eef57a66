// GpuGroup: what an Engine has for GPU memory. Once the ranks have agreed on a call over their
// transport, it goes through the group's lane; a lane is made with the first call, its NCCL id
// spread over the same transport.
//
// Messages between two ranks have lanes of their own (gpu_messages.cc).
//
// While the GPU has something to do, a timer looks after it: what has ended, what NCCL reports,
// whether a peer is lost, whether the GPU has been at one call for the group's timeout with nobody
// waiting on the host. A failure breaks the engine; the Works of calls that the GPU was given
// fail only when it has let go of their buffers.
//
// prepare() and busy() from any thread, the rest in the progress context.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/comm/nccl/lane.h"
#include "trireme/comm/operation.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class Engine;
struct Call;
struct FoldPlan;

namespace nccl {

class GpuGroup final : public ProgressSource, public std::enable_shared_from_this<GpuGroup> {
 public:
  GpuGroup(Engine& engine, std::shared_ptr<Gpu> gpu);
  ~GpuGroup() override;

  const std::shared_ptr<Gpu>& gpu() const noexcept { return gpu_; }
  /// Makes `operation` one for the GPU: chooses its algorithm and notes where its buffers' streams
  /// stand. ConfigError where the GPU cannot do it.
  void prepare(Operation& operation, bool native);
  /// All ranks have agreed on it.
  void run(const std::shared_ptr<Call>& call);
  /// A send or receive of the user's, whose own header is filled in (gpu_messages.cc).
  void run_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag);
  /// Whether the GPU has been given, or waits for, something of this group.
  bool busy() const noexcept { return open_.load(std::memory_order_acquire) > 0; }
  /// True if `call` is among them: it then ends through this group alone.
  bool holds(const Call& call) const noexcept;

  void abort(const std::exception_ptr& error) noexcept;
  /// The engine goes. Without an error: takes leave of the peers first, for at most a second.
  void detach() noexcept;
  bool gone() const noexcept { return gone_.load(std::memory_order_acquire); }

  bool poll() override;
  bool pending() const noexcept override { return working(); }
  int descriptor() const noexcept override { return -1; }  // a timer polls, too
  void arm(bool) noexcept override {}

 private:
  struct Answer;
  struct Pair {  // messages to, or from, one peer
    std::shared_ptr<Lane> lane;
    NcclId id{};
    std::uint64_t next = 0;                                // number of a message
    std::map<std::uint64_t, std::shared_ptr<Call>> early;  // sends that wait for those before
  };

  std::shared_ptr<GpuCall> hold(const std::shared_ptr<Call>& call);
  void let_go(const std::shared_ptr<Call>& call);
  NcclId new_id();
  void send_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag);
  void receive_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag);
  void answer(const std::shared_ptr<Call>& call, int peer, net::Tag tag);
  void give_message(const std::shared_ptr<Call>& call, int peer, Pair& pair, int own);
  bool went_well(const std::shared_ptr<Call>& call, const std::exception_ptr& error);
  bool look_after(Lane& lane, TimePoint now);
  bool working() const noexcept { return busy() || draining_.load() || leaving_.load(); }
  std::shared_ptr<const FoldPlan> fold_plan(std::uint32_t total);
  void note_streams(const Operation& operation, std::vector<GpuEvent>& ready);
  void start_lane();
  void spread_id();
  void watch();
  void tick();
  void look_for_lost_peers(const Lane& lane, TimePoint now);
  void look_for_standstill(const Lane& lane, TimePoint now);
  void fail(std::exception_ptr error);
  std::exception_ptr about(const GpuCall* call, const std::exception_ptr& error) const;
  void drain(TimePoint now);
  void take_leave(TimePoint now);
  void end_leave() noexcept;
  void rest();

  Engine* engine_;  // null once detached
  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<Gpu> gpu_;
  const int rank_, size_;
  const Duration timeout_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::shared_ptr<Lane> lane_;                  // of the collectives: one of them
  std::map<std::pair<int, bool>, Pair> pairs_;  // by peer and whether this rank sends
  bool spreading_ = false, watching_ = false, added_ = false;
  NcclId id_{};
  std::vector<std::shared_ptr<Call>> held_;
  std::atomic<int> open_{0};
  Duration pause_{};
  TimePoint lost_since_ = TimePoint::max();
  std::exception_ptr error_;  // of abort()
  std::atomic<bool> draining_{false}, leaving_{false}, gone_{false};
  TimePoint until_ = TimePoint::max();  // for how long it drains, or takes leave
  std::mutex mutex_;                    // plans_
  std::map<std::uint32_t, std::shared_ptr<const FoldPlan>> plans_;
};

/// The GPU of all buffers of `operation`, or the CPU; ConfigError where they lie apart.
Device device_of(const Operation& operation);

}  // namespace nccl
}  // namespace comm
}  // namespace v0
}  // namespace trireme
