// StagedCalls: calls on the memory of a device that no backend reaches, through the host's memory.
//
//     caller's thread      copies to the host start; the operation gets the host's buffers
//     progress context     when the copies have ended, the call begins like any on CPU memory;
//                          when it has ended, its result is copied to the device;
//                          when that copy has ended, the Work ends; Work::wait_on() needs only its
//                          start, since streams can wait for it; a collective without a result for
//                          this rank has no such copy
//
// Copies of later calls run meanwhile. A timer polls the device while calls wait for it. A failed
// call keeps its buffers until the device no longer accesses them. stage() may be called from any
// thread, the rest, but for delivering(), in the progress context.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work_source.h"
#include "trireme/comm/device/device_watch.h"
#include "trireme/comm/staging/device_copies.h"

namespace trireme::inline v0::comm {

struct Call;
struct Operation;
class Engine;

/// The last of a call's copies, for which streams can wait once it has started.
class LastCopy final : public DeviceSide {
 public:
  /// Called once.
  void set(std::shared_ptr<DeviceMark> end) {
    end_ = std::move(end);
    started_.store(true, std::memory_order_release);
  }
  bool enqueued() const noexcept override { return started_.load(std::memory_order_acquire); }
  void wait_on(Stream stream) override { end_->wait_on(stream); }

 private:
  std::shared_ptr<DeviceMark> end_;
  std::atomic<bool> started_{false};
};

/// The device's buffers of an operation that runs on copies in the host's memory.
struct Staged {
  std::shared_ptr<DeviceCopies> copies;
  Device device;
  std::vector<StagedBuffer> fetched, results;
  std::vector<Buffer> alone = {};         // the buffers of a collective of one rank
  std::shared_ptr<DeviceMark> mark = {};  // of the copies under way
  std::shared_ptr<LastCopy> last = std::make_shared<LastCopy>();
};

/// Replaces the operation's buffers on `device` by memory of the host, and starts to copy the data
/// that this rank gives. In a group of one rank, a collective becomes a copy on the device, and its
/// operation gets empty buffers.
void stage(Operation& operation, Device device, std::shared_ptr<DeviceCopies> copies,
           const GroupFacts& facts);

class StagedCalls final : public ProgressSource, public std::enable_shared_from_this<StagedCalls> {
 public:
  explicit StagedCalls(Engine& engine);

  /// True if the data that the call gives is in the host's memory. If not, Engine::begin_staged()
  /// follows when it is.
  bool ready(const std::shared_ptr<Call>& call);
  /// Ends a call that succeeded; a staged one when its result is on the device.
  void deliver(const std::shared_ptr<Call>& call);
  /// Keeps the buffers of a failed call until the device no longer accesses them.
  void abandon(const Call& call);
  /// The engine broke: ends the calls that are not in its queue.
  void fail(const std::exception_ptr& error) noexcept;
  /// True while results are copied to the device. Any thread.
  bool delivering() const noexcept { return delivering_; }
  /// True if calls wait for the device.
  bool busy() const noexcept { return !waiting_.empty() || !delivered_.empty(); }
  /// Forgets the engine. pending() until the device no longer accesses any buffer; buffers that it
  /// still accesses after the group's timeout are never freed.
  void detach() noexcept;

  bool poll() override;
  bool pending() const noexcept override { return pending_; }
  int descriptor() const noexcept override { return -1; }
  void arm(bool) noexcept override {}

 private:
  void watch();
  bool begin_ready();
  bool end_delivered();

  Engine* engine_;  // null once detached
  const std::shared_ptr<Waiter> waiter_;
  DeviceWatch watch_;
  std::vector<std::shared_ptr<Call>> waiting_;    // for their fetched copies
  std::vector<std::shared_ptr<Call>> delivered_;  // for the copies of their results
  std::vector<std::shared_ptr<Staged>> abandoned_;
  std::atomic<bool> pending_{false}, delivering_{false};
  TimePoint until_{};  // once detached: the end of that timeout
};

}  // namespace trireme::inline v0::comm
