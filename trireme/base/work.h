// Work: an operation that may still run. Its producer's end is in work_source.h.
//
// A default Work is complete and allocates nothing. Copies share one state. Thread safe. If nobody
// waits for a Work that fails, the WorkOwner gets the error (the communicator keeps it).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "trireme/base/buffer.h"
#include "trireme/base/clock.h"

namespace trireme::inline v0 {

namespace detail {
struct WorkState;
}

class [[nodiscard]] Work {
 public:
  /// A completed Work.
  Work() noexcept = default;
  /// A failed Work.
  static Work failed(std::exception_ptr error);

  bool done() const noexcept;
  /// Blocks until done, within the job's timeout. Rethrows the operation's error.
  void wait() const { wait(Deadline::job()); }
  void wait(Deadline deadline) const;
  /// For devices: later work on `stream` finds this rank's result. The host waits only until that is
  /// enqueued: over NCCL until all ranks have made the call, else until the last copy has started. A
  /// later failure breaks the communicator, whose next call throws it. On the CPU this is wait().
  void wait_on(Stream stream) const;
  /// Runs `next` after success, in the progress context (for a default Work at once, on this
  /// thread); it must not block. The returned Work completes when `next` has returned, or fails
  /// with this Work's error or that of `next`.
  Work then(std::function<void()> next) const;
  /// Calls `next` with the error (null on success) in the progress context when this Work has
  /// settled (for a default or failed() Work at once, on this thread). The failure then counts as
  /// seen.
  void on_settled(std::function<void(const std::exception_ptr&)> next) const;
  /// Done when all are done. Fails with the first failure, after all have settled.
  static Work all(std::span<const Work> works);

 private:
  friend class WorkSource;
  explicit Work(std::shared_ptr<detail::WorkState> state) noexcept : state_(std::move(state)) {}
  void block(const std::function<bool()>& ready, Deadline deadline) const;
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace trireme::inline v0
