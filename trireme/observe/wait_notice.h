// WaitNotice: logs what a process waits for, after 2, 4, 8, ... s, until it is destroyed. Shorter
// waits log nothing.
//
// The lines are tasks of a Waiter, so its clock may be virtual, and the waiting thread may block in
// something else, such as a call of gRPC.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/waiter.h"

namespace trireme::inline v0::observe {

class WaitNotice {
 public:
  /// Logs "`who` waits for `whom()` (4 s so far)". `whom` is called in the progress context and
  /// must not block. `waiter` must live longer.
  WaitNotice(Waiter& waiter, std::string who, std::function<std::string()> whom);
  /// After it nothing is logged, and `whom` is not called.
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;

 private:
  struct State;
  static void plan(const std::shared_ptr<State>& state);
  const std::shared_ptr<State> state_;
};

}  // namespace trireme::inline v0::observe
