// Waiter: the only place where Trireme blocks, tells time and makes progress.
//
// A process (in the simulated network: a rank) has one Waiter. It owns the *progress context*:
// transports, communicators and Work continuations run only there, one at a time, so they need no
// locks of their own. A blocked user thread drives the context itself if it is free; otherwise a
// background thread drives it. All methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>

#include "trireme/base/clock.h"

namespace trireme::inline v0 {

/// An object that must be polled to make progress (a transport's sockets or rings). Its methods are
/// called in the progress context only, except pending(), which any thread may call.
class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  /// Advances whatever can advance without blocking. True if anything advanced.
  virtual bool poll() = 0;
  /// True while an operation is outstanding that poll() must advance.
  virtual bool pending() const noexcept = 0;
  /// A descriptor that epoll reports readable (level-triggered) when poll() has work; -1 if none.
  virtual int descriptor() const noexcept = 0;
  /// The context will sleep (true: peers must ring the descriptor) or is awake again (false).
  virtual void arm(bool sleeping) noexcept = 0;
};

class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual TimePoint now() const noexcept = 0;
  /// True if it pays to look for a peer's answer for a few microseconds before anything else. False
  /// if ranks share cores.
  virtual bool spins() const noexcept = 0;
  /// Blocks the calling thread until ready() or `deadline`, driving progress meanwhile; returns
  /// ready(). `ready` must be cheap, must not block and must have no side effects: it may be called
  /// again after it has returned true. Only this thread calls it. Throws CheckFailure inside the
  /// progress context, where the wait could never end.
  virtual bool wait_until(const std::function<bool()>& ready, TimePoint deadline) = 0;
  /// Call it when something that a ready() reads has changed.
  virtual void wake() noexcept = 0;
  /// Runs `task` in the progress context: at once if the context is free or is the caller's,
  /// otherwise queued in order. `task` must not block or throw.
  virtual void run(std::function<void()> task) = 0;
  /// As run(), but only if it can run `task` before it returns; otherwise false, without effect.
  /// So `task` may refer to the caller's variables. False inside the context.
  virtual bool try_run(const std::function<void()>& task) = 0;
  virtual void run_at(TimePoint time, std::function<void()> task) = 0;
  virtual void add(std::shared_ptr<ProgressSource> source) = 0;
  /// When this returns, `source` is not polled any more.
  virtual void remove(const ProgressSource* source) = 0;

  /// Sleeps on this waiter's clock (virtual in the simulated network) and drives progress.
  void sleep(Duration duration) {
    wait_until([] { return false; }, now() + duration);
  }
};

}  // namespace trireme::inline v0
