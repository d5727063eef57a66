// WorkSource: the producer's end of a Work. WorkOwner decides what happens when a wait reaches its
// deadline; DeviceSide is the device's end of a Work that runs on one. Thread safe.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"
#include "trireme/base/work.h"

namespace trireme::inline v0 {

class WorkOwner {
 public:
  virtual ~WorkOwner() = default;
  /// The timeout that Deadline::job() stands for.
  virtual Deadline timeout() const noexcept = 0;
  /// Called when a wait reaches its deadline after `waited`. Returns the time until which to wait
  /// further (a peer is alive in user code). Otherwise aborts the group, which settles the Work,
  /// and returns TimePoint::max().
  virtual TimePoint on_deadline(TimePoint now, Duration waited) = 0;
  virtual void on_unseen_failure(std::exception_ptr error) noexcept = 0;
  /// A user thread begins or ends to block for `description`. Not called if the Work is done.
  virtual void on_wait_begin(std::string_view description) noexcept { (void)description; }
  virtual void on_wait_end(std::string_view description, Duration waited) noexcept {
    (void)description, (void)waited;
  }
};

class DeviceSide {
 public:
  virtual ~DeviceSide() = default;
  /// True once the device's last part of the operation is enqueued; only then can a stream wait.
  virtual bool enqueued() const noexcept = 0;
  /// Later work on `stream` starts after that part. Call it only after enqueued().
  virtual void wait_on(Stream stream) = 0;
};

namespace detail {
struct WorkState {
  enum Status : int { Pending, Done, Failed };
  using Continuation = std::function<void(const std::exception_ptr&)>;
  ~WorkState();

  std::atomic<int> status{Pending};
  std::atomic<bool> seen{false};
  std::exception_ptr error;
  std::mutex mutex;
  std::vector<Continuation> continuations;
  std::shared_ptr<Waiter> waiter;
  std::shared_ptr<WorkOwner> owner;
  std::shared_ptr<DeviceSide> device;  // null on the CPU
  std::string description;
};
}  // namespace detail

/// The producer's end. Call complete(), fail() or settle() in the progress context. Only the first
/// call counts, so an abort may race with a completion.
class WorkSource {
 public:
  /// `description` ("all_reduce bucket 2") appears in timeout errors. `owner` may be null;
  /// Deadline::job() then means never.
  explicit WorkSource(std::shared_ptr<Waiter> waiter, std::shared_ptr<WorkOwner> owner = nullptr,
                      std::string description = {});
  /// Call it before anybody gets work().
  void set_device(std::shared_ptr<DeviceSide> device) const { state_->device = std::move(device); }
  Work work() const { return Work(state_); }
  bool settled() const noexcept;
  void complete() const { settle(nullptr); }
  void fail(std::exception_ptr error) const { settle(std::move(error)); }
  /// Completes it if `error` is null, else fails it.
  void settle(std::exception_ptr error) const;

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace trireme::inline v0
