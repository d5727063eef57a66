// Waiter: the one place where Trireme blocks, tells time and makes progress.
//
// A process (or, in the simulated network, a rank) has one Waiter. It owns the *progress context*:
// transports, communicators and Work continuations run only there, one at a time, so that they
// need no locks of their own. A blocked user thread drives the context itself when it is free; a
// background thread drives it otherwise. All methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>

#include "trireme/base/clock.h"

namespace trireme {
inline namespace v0 {

/// Something that must be polled to move (a transport's sockets or rings). Its methods are called
/// in the progress context only, except pending(), which any thread may call.
class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  /// Advances whatever can advance without blocking; true if anything moved.
  virtual bool poll() = 0;
  /// True while an operation is outstanding that poll() must advance.
  virtual bool pending() const noexcept = 0;
  /// A descriptor that epoll reports readable (level-triggered) when poll() has work; -1 if none.
  virtual int descriptor() const noexcept = 0;
  /// The context is about to sleep (true: peers must ring the descriptor) or awake again (false).
  virtual void arm(bool sleeping) noexcept = 0;
};

class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual TimePoint now() const noexcept = 0;
  /// Blocks the calling thread until ready() or `deadline`, driving progress meanwhile; returns
  /// ready(). `ready` must be cheap and must not block; it is called from this thread only, also
  /// again after it said true, so it must only look.
  /// Called from inside the progress context it throws CheckFailure (it could never return).
  virtual bool wait_until(const std::function<bool()>& ready, TimePoint deadline) = 0;
  /// Something that a ready() reads has changed.
  virtual void wake() noexcept = 0;
  /// Runs `task` in the progress context: inline when the context is free (or this is it), else
  /// queued in order. `task` must not block or throw.
  virtual void run(std::function<void()> task) = 0;
  virtual void run_at(TimePoint time, std::function<void()> task) = 0;
  virtual void add(std::shared_ptr<ProgressSource> source) = 0;
  /// After it returns, `source` is not polled any more.
  virtual void remove(const ProgressSource* source) = 0;

  /// Sleeps on this waiter's clock (virtual in the simulated network), driving progress.
  void sleep(Duration duration) {
    wait_until([] { return false; }, now() + duration);
  }
};

}  // namespace v0
}  // namespace trireme
