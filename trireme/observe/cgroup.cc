#include "trireme/observe/cgroup.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace trireme::inline v0::observe {
namespace {

using Folder = std::filesystem::path;

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

void add(std::vector<Folder>& folders, const Folder& mount, std::string group) {
  for (; group.size() > 1; group.resize(group.rfind('/'))) folders.push_back(mount / &group[1]);
  folders.push_back(mount);
}

// The number in `file`; `otherwise` if it says "max" or is missing.
std::int64_t number(const Folder& file, std::int64_t otherwise) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value ? value : otherwise;
}

// The value of `wanted` in a file of "name value" lines.
std::int64_t entry(const Folder& file, const std::string& wanted) {
  std::ifstream lines(file);
  std::string name;
  for (std::int64_t value = 0; lines >> name >> value;)
    if (name == wanted) return value;
  return 0;
}

std::int64_t limit_of(const Folder& group) {
  return std::min(number(group / "memory.max", kNone),
                  number(group / "memory.limit_in_bytes", kNone));
}

std::int64_t used_by(const Folder& group) {
  const Folder stat = group / "memory.stat";
  const bool first = std::filesystem::exists(group / "memory.usage_in_bytes");
  const std::string prefix = first ? "total_" : "";
  return number(group / (first ? "memory.usage_in_bytes" : "memory.current"), 0) -
         entry(stat, prefix + "inactive_file") - entry(stat, prefix + "active_file");
}

}  // namespace

// Lines are "number:controllers:group"; version 2 has no controllers.
Cgroup::Cgroup(const Folder& root) {
  const Folder mounts = root / "sys/fs/cgroup";
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      for (const Folder& mount : {mounts, mounts / "unified"}) {
        add(memory_, mount, group);
        add(cpu_, mount, group);
      }
    }
    if (controllers.find(",memory,") != std::string::npos) add(memory_, mounts / "memory", group);
    if (controllers.find(",cpu,") != std::string::npos) add(cpu_, mounts / "cpu", group);
  }
}

double Cgroup::cores() const {
  double least = 0;
  const auto take = [&](double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    least = least == 0 ? quota / period : std::min(least, quota / period);
  };
  for (const Folder& group : cpu_) {
    double quota = 0, period = 0;
    if (std::ifstream file(group / "cpu.max"); file >> quota >> period) take(quota, period);
    take(static_cast<double>(number(group / "cpu.cfs_quota_us", 0)),
         static_cast<double>(number(group / "cpu.cfs_period_us", 0)));
  }
  return least;
}

std::int64_t Cgroup::memory_limit() const {
  std::int64_t least = kNone;
  for (const Folder& group : memory_) least = std::min(least, limit_of(group));
  return least;
}

std::int64_t Cgroup::memory_left() const {
  std::int64_t least = kNone;
  for (const Folder& group : memory_) {
    const std::int64_t limit = limit_of(group);
    if (limit < kNone) least = std::min(least, std::max<std::int64_t>(0, limit - used_by(group)));
  }
  return least;
}

}  // namespace trireme::inline v0::observe
