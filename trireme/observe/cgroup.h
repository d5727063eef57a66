// Cgroup: the limits of this process's control group and the groups around it. Handles versions 1
// and 2, and containers, where the group's own folder may be the mount's root.
//
// Only reads /proc/self/cgroup and /sys/fs/cgroup; thread safe. Missing files mean no limit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trireme::inline v0::observe {

class Cgroup {
 public:
  /// `root`: the folder that contains proc/ and sys/, for tests.
  explicit Cgroup(const std::filesystem::path& root = "/");
  /// The smallest quota of processor time, in cores; 0: no quota.
  double cores() const;
  /// The smallest memory limit, in bytes; more than any machine has: no limit.
  std::int64_t memory_limit() const;
  /// The bytes that may still be used under every limit. Cached files count as free.
  std::int64_t memory_left() const;

 private:
  // The group's own folder, then those of the groups around it.
  std::vector<std::filesystem::path> memory_, cpu_;
};

}  // namespace trireme::inline v0::observe
