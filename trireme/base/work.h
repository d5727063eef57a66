// Work: an operation that may still be running, and WorkSource: its producer's end.
//
// A default Work is complete and costs no allocation. Copies share one state. Thread safe.
// A failure that nobody ever waited for is handed to the WorkOwner (the communicator keeps it).
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {

/// Who stands behind a Work and decides what happens at its deadline.
class WorkOwner {
 public:
  virtual ~WorkOwner() = default;
  /// The timeout that Deadline::job() stands for.
  virtual Deadline timeout() const noexcept = 0;
  /// A waiter's deadline passed after `waited`. Returns the time until which to go on waiting
  /// (a peer is alive in user code), or aborts the group, which settles the Work, and returns
  /// TimePoint::max().
  virtual TimePoint on_deadline(TimePoint now, Duration waited) = 0;
  virtual void on_unseen_failure(std::exception_ptr error) noexcept = 0;
  /// A user thread begins, and ends, a blocking wait for `description`. Work that was already done
  /// is not announced.
  virtual void on_wait_begin(std::string_view description) noexcept { (void)description; }
  virtual void on_wait_end(std::string_view description, Duration waited) noexcept {
    (void)description, (void)waited;
  }
};

/// The device's end of a Work that a device carries out. Any thread.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;
  /// True once the device has been given all of it: from then on a stream can wait for it.
  virtual bool enqueued() const noexcept = 0;
  /// Whatever is given to `stream` later starts when this has ended. Only after enqueued().
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

class [[nodiscard]] Work {
 public:
  /// Complete at birth.
  Work() noexcept = default;
  /// Failed at birth.
  static Work failed(std::exception_ptr error);

  bool done() const noexcept;
  /// Blocks until done, within the job's timeout; rethrows the operation's error.
  void wait() const { wait(Deadline::job()); }
  void wait(Deadline deadline) const;
  /// Device side: later work on `stream` waits for this; the host waits only until the device has
  /// been given it (all ranks have come). A failure after that breaks the communicator, whose next
  /// call throws it. On the CPU it is wait().
  void wait_on(Stream stream) const;
  /// `next` runs in the progress context after success; it may not block. The returned Work ends
  /// when `next` has returned, or fails with this Work's error or with what `next` threw.
  Work then(std::function<void()> next) const;
  /// Calls `next` with the error (null on success) when settled: inline in the progress context,
  /// at once if already settled. The failure counts as seen.
  void on_settled(std::function<void(const std::exception_ptr&)> next) const;
  /// Done when all are; fails with the first failure, after all have settled.
  static Work all(std::span<const Work> works);

 private:
  friend class WorkSource;
  explicit Work(std::shared_ptr<detail::WorkState> state) noexcept : state_(std::move(state)) {}
  void block(const std::function<bool()>& ready, Deadline deadline) const;
  std::shared_ptr<detail::WorkState> state_;
};

/// The producer's end. complete() and fail() are called in the progress context, once in all;
/// later calls are ignored, so an abort may race with a completion.
class WorkSource {
 public:
  /// `description` ("all_reduce bucket 2") is used in timeouts. `owner` may be null: then
  /// Deadline::job() means never.
  explicit WorkSource(std::shared_ptr<Waiter> waiter, std::shared_ptr<WorkOwner> owner = nullptr,
                      std::string description = {});
  /// Before work() is given to anybody.
  void set_device(std::shared_ptr<DeviceSide> device) const { state_->device = std::move(device); }
  Work work() const { return Work(state_); }
  bool settled() const noexcept;
  void complete() const { settle(nullptr); }
  void fail(std::exception_ptr error) const { settle(std::move(error)); }

 private:
  void settle(std::exception_ptr error) const;
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace v0
}  // namespace trireme
