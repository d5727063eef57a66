// GpuGroup: an Engine's backend that runs calls on GPU memory. After the ranks have agreed on a
// call over their transport, it goes through the group's Lane. The first call makes the lane, whose
// NCCL id is sent over the transport. Messages use other lanes (gpu_messages.h).
//
// While calls are open, a timer polls: it ends finished calls, asks NCCL for errors, looks for lost
// peers, and checks whether the GPU has spent the group's timeout on one call (only if no thread
// waits on the host). A failure breaks the engine.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/comm/device/device_backend.h"
#include "trireme/comm/device/device_watch.h"
#include "trireme/comm/fold_plan.h"
#include "trireme/comm/nccl/gpu_messages.h"
#include "trireme/comm/nccl/lane.h"

namespace trireme::inline v0::comm {

namespace nccl {

/// The calls that only the GPU's backend may end. any() may be called from any thread.
class HeldCalls {
 public:
  /// Call it before the call goes to a lane.
  std::shared_ptr<GpuCall> add(const std::shared_ptr<Call>& call);
  void remove(const std::shared_ptr<Call>& call);
  bool has(const Call& call) const noexcept;
  bool any() const noexcept { return count_.load(std::memory_order_acquire) > 0; }
  const std::vector<std::shared_ptr<Call>>& all() const noexcept { return calls_; }

 private:
  std::vector<std::shared_ptr<Call>> calls_;
  std::atomic<int> count_{0};
};

class GpuGroup final : public DeviceBackend,
                       public ProgressSource,
                       public std::enable_shared_from_this<GpuGroup> {
 public:
  GpuGroup(Engine& engine, std::shared_ptr<Gpu> gpu);

  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override;
  /// Also records events on the buffers' streams, and loads the kernel that the call needs.
  void prepare(Operation& operation, std::string_view wanted) override;
  Arena allocate(std::size_t bytes, Device device) override;
  void send(const std::shared_ptr<Call>& call, int peer, net::Tag tag) override {
    messages_.send(call, peer, tag);
  }
  void answer(const std::shared_ptr<Call>& call, int peer, net::Tag tag) override {
    messages_.answer(call, peer, tag);
  }
  bool busy() const noexcept override { return held_.any(); }
  bool holds(const Call& call) const noexcept override { return held_.has(call); }
  std::exception_ptr timeout(Duration waited, const std::string& operation,
                             const std::string& label) const override;
  void abort(const std::exception_ptr& error) noexcept override;
  /// Unless aborted, finalizes the NCCL communicators, within a second at most.
  void detach() noexcept override;
  bool gone() const noexcept override { return gone_.load(std::memory_order_acquire); }
  /// Runs a collective on which all ranks have agreed.
  void run(const std::shared_ptr<Call>& call);

  bool poll() override;
  bool pending() const noexcept override { return busy() || draining_ || leaving_; }
  int descriptor() const noexcept override { return -1; }  // DeviceWatch polls it
  void arm(bool) noexcept override {}

 private:
  friend class GpuMessages;

  /// This rank, its group and the fold plan of the operation. Any thread.
  GpuPlace place_of(const Operation& operation);
  bool look_after(Lane& lane, TimePoint now);
  void start_lane();
  int lost_peer(const GpuCall* call) const;
  void fail(std::exception_ptr error);
  std::exception_ptr about(const GpuCall* call, const std::exception_ptr& error) const;
  void drain(TimePoint now);
  void take_leave(TimePoint now) noexcept;

  Engine* engine_;  // null once detached
  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<Gpu> gpu_;
  const int rank_, size_;
  const Duration timeout_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::shared_ptr<Lane> lane_;  // the one for collectives
  GpuMessages messages_{*this};
  DeviceWatch watch_;
  bool spreading_ = false;
  NcclId id_{};
  HeldCalls held_;
  std::exception_ptr error_;  // given to abort()
  std::atomic<bool> draining_{false}, leaving_{false}, gone_{false};
  TimePoint until_ = TimePoint::max();  // the deadline of draining or leaving
  std::mutex plans_mutex_;
  FoldPlans plans_;
};

/// For CommunicatorOptions::device.
MakeDeviceBackend backend_on(std::shared_ptr<Gpu> gpu);

}  // namespace nccl
}  // namespace trireme::inline v0::comm
