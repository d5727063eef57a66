// Cgroup: what the control group of this process, and those around it, allow it: version 1 and 2,
// in a container too (where the group's own folder may be the mount's root).
//
// Pure reads of /proc/self/cgroup and /sys/fs/cgroup; thread safe. What is missing limits nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace observe {

class Cgroup {
 public:
  /// `root`: where proc/ and sys/ are, for tests.
  explicit Cgroup(const std::filesystem::path& root = "/");
  /// The smallest quota of processor time, in cores; 0: none.
  double cores() const;
  /// The smallest limit on memory, in bytes; the largest number there is: none.
  std::int64_t memory_limit() const;
  /// What may still be taken below every limit; cached files count as free.
  std::int64_t memory_left() const;

 private:
  // A group's own folder, then those of the groups around it.
  std::vector<std::filesystem::path> memory_, cpu_;
};

}  // namespace observe
}  // namespace v0
}  // namespace trireme
