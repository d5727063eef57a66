#include "trireme/observe/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/observe/cgroup.h"

namespace trireme::inline v0::observe {
namespace {

// The number after `name` in a file of "Name:   123 kB" lines, in bytes.
std::int64_t kilobytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    std::int64_t value = 0;
    std::istringstream(line.substr(name.size())) >> value;
    return value * 1024;
  }
  return 0;
}

}  // namespace

std::vector<int> affinity_cores() {
  // The kernel refuses a set that is smaller than its own, which may be larger than one cpu_set_t.
  std::vector<cpu_set_t> sets(1);
  while (sched_getaffinity(0, sets.size() * sizeof(cpu_set_t), sets.data()) != 0) {
    if (errno != EINVAL || sets.size() > 1024) return {0};
    sets.assign(2 * sets.size(), {});
  }
  std::vector<int> cores;
  for (int core = 0; core < static_cast<int>(sets.size()) * CPU_SETSIZE; ++core)
    if (CPU_ISSET_S(core, sets.size() * sizeof(cpu_set_t), sets.data())) cores.push_back(core);
  return cores;
}

Cores decide_cores(int online, int affinity, double quota) {
  Cores cores{.online = online, .affinity = affinity, .quota = quota};
  cores.usable = std::min(online, affinity);
  std::string why = affinity < online
                        ? "the affinity mask allows " + std::to_string(affinity)
                        : "neither the affinity mask nor the cgroup quota limits them";
  // With a quota of 1.5 cores two threads do more than one.
  if (quota > 0 && std::ceil(quota) < cores.usable) {
    cores.usable = std::max(1, static_cast<int>(std::ceil(quota)));
    std::ostringstream text;
    text << "the cgroup quota is " << quota;
    why = text.str();
  }
  cores.reason = std::to_string(cores.usable) + " of the machine's " + std::to_string(online) +
                 (online == 1 ? " core: " : " cores: ") + why;
  return cores;
}

Cores usable_cores() {
  return decide_cores(static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))),
                      static_cast<int>(affinity_cores().size()), Cgroup().cores());
}

std::int64_t memory_total() { return kilobytes("/proc/meminfo", "MemTotal:"); }
std::int64_t memory_available() { return kilobytes("/proc/meminfo", "MemAvailable:"); }
std::int64_t swap_available() { return kilobytes("/proc/meminfo", "SwapFree:"); }
std::int64_t memory_bytes() {
  return kilobytes("/proc/self/status", "RssAnon:") + kilobytes("/proc/self/status", "RssShmem:");
}
std::int64_t peak_memory_bytes() {
  return kilobytes("/proc/self/status", "VmHWM:") - kilobytes("/proc/self/status", "RssFile:");
}

std::int64_t memory_limit() { return std::min(Cgroup().memory_limit(), memory_total()); }
std::int64_t memory_left() { return std::min(Cgroup().memory_left(), memory_total()); }

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string clock_name() {
  std::string boot;
  if (!(std::ifstream("/proc/sys/kernel/random/boot_id") >> boot)) return "";
  std::error_code none;  // "time:[4026531834]"; empty before Linux 5.6
  return boot + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

}  // namespace trireme::inline v0::observe
