// GpuGroup: an Engine's backend that runs calls on GPU memory. After the ranks have agreed on a
// call over their transport, it goes through the group's Lane. The first call makes the lane, whose
// NCCL id is sent over the transport. Messages use other lanes (gpu_messages.cc).
//
// While calls are open, a timer polls: it ends finished calls, asks NCCL for errors, looks for lost
// peers, and checks whether the GPU has spent the group's timeout on one call (only if no thread
// waits on the host). A failure breaks the engine.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/nccl/lane.h"

namespace trireme::inline v0::comm {

struct FoldPlan;

namespace nccl {

class GpuGroup final : public DeviceBackend,
                       public ProgressSource,
                       public std::enable_shared_from_this<GpuGroup> {
 public:
  GpuGroup(Engine& engine, std::shared_ptr<Gpu> gpu);
  ~GpuGroup() override;

  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override;
  /// Records events on the buffers' streams.
  void prepare(Operation& operation, std::string_view wanted) override;
  Arena allocate(std::size_t bytes, Device device) override;
  void run_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag) override;
  bool busy() const noexcept override { return open_.load(std::memory_order_acquire) > 0; }
  bool holds(const Call& call) const noexcept override;
  std::exception_ptr timeout(Duration waited, const std::string& operation,
                             const std::string& label) const override;
  void abort(const std::exception_ptr& error) noexcept override;
  /// Unless aborted, finalizes the NCCL communicators, within a second at most.
  void detach() noexcept override;
  bool gone() const noexcept override { return gone_.load(std::memory_order_acquire); }
  /// Runs a collective on which all ranks have agreed.
  void run(const std::shared_ptr<Call>& call);

  bool poll() override;
  bool pending() const noexcept override { return working(); }
  int descriptor() const noexcept override { return -1; }  // a timer polls it (tick())
  void arm(bool) noexcept override {}

 private:
  struct Answer;
  struct Pair {  // the messages to, or from, one peer
    std::shared_ptr<Lane> lane;
    NcclId id{};
    std::uint64_t next = 0;                                // number of the next message
    std::map<std::uint64_t, std::shared_ptr<Call>> early;  // sends whose predecessors are missing
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
  std::shared_ptr<Lane> lane_;                  // the one for collectives
  std::map<std::pair<int, bool>, Pair> pairs_;  // by peer and whether this rank sends
  bool spreading_ = false, watching_ = false, added_ = false;
  NcclId id_{};
  std::vector<std::shared_ptr<Call>> held_;
  std::atomic<int> open_{0};
  Duration pause_{};
  TimePoint lost_since_ = TimePoint::max();
  std::exception_ptr error_;  // given to abort()
  std::atomic<bool> draining_{false}, leaving_{false}, gone_{false};
  TimePoint until_ = TimePoint::max();  // the deadline of draining or leaving
  std::mutex mutex_;                    // plans_
  std::map<std::uint32_t, std::shared_ptr<const FoldPlan>> plans_;
};

/// For CommunicatorOptions::device.
MakeDeviceBackend backend_on(std::shared_ptr<Gpu> gpu);

}  // namespace nccl
}  // namespace trireme::inline v0::comm
