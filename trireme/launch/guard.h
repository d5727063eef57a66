// Guard: a small process that ends the process groups of a launcher's ranks when the launcher dies,
// however it dies. The kernel kills the ranks themselves (spawn.h), but not what they have started.
//
// It is a copy of this process that only reads a pipe: the pipe's end tells it of the launcher's.
// What a rank's children put into a group or session of their own is out of its reach. Whoever
// kills it takes that protection away and disturbs nothing else. Not thread safe. Throws
// ResourceError where the system refuses.
#pragma once

#include <sys/types.h>

namespace trireme {
inline namespace v0 {
namespace launch {

class Guard {
 public:
  Guard();
  /// Ends it, and with it the groups that it still watches.
  ~Guard();
  Guard(const Guard&) = delete;
  void watch(pid_t group) noexcept;
  /// Before the number of an ended group may be given to another.
  void forget(pid_t group) noexcept;

 private:
  void tell(pid_t news) const noexcept;
  pid_t pid_ = -1;
  int pipe_ = -1;
  int read_end_ = -1;  // open here too: writing to a guard that was killed is no SIGPIPE
};

}  // namespace launch
}  // namespace v0
}  // namespace trireme
