// Guard: a small process that kills the process groups of the ranks when the launcher dies for any
// reason. The kernel kills the ranks themselves (spawn.h), but not the processes that they started.
//
// It is a copy of this process that only reads a pipe; the pipe's end tells it that the launcher
// has died. It cannot reach processes that moved to another group or session. Killing the guard
// only removes this protection. Not thread safe. Throws ResourceError if the system refuses.
#pragma once

#include <sys/types.h>

#include "trireme/launch/hosts/spawn.h"

namespace trireme::inline v0::launch {

class Guard {
 public:
  Guard();
  /// Ends the guard, which kills the groups that it still watches.
  ~Guard();
  Guard(const Guard&) = delete;
  void watch(pid_t group) noexcept;
  /// Call it before the number of an ended group can be reused.
  void forget(pid_t group) noexcept;

 private:
  void tell(pid_t news) const noexcept;
  Pipe pipe_;  // both ends are kept open here: writing to a killed guard raises no SIGPIPE
  pid_t pid_ = -1;
};

}  // namespace trireme::inline v0::launch
