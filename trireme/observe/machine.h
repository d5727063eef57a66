// What this machine gives this process: cores, memory, names. Read from /proc, sysfs and cgroups.
//
// Pure reads; thread safe; a file that is missing is "unknown", never an error.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {
inline namespace v0 {
namespace observe {

struct Cores {
  int usable = 1;      // min(affinity, quota rounded up), at least 1
  int online = 1;      // of the machine
  int affinity = 1;    // in this process's mask
  double quota = 0;    // of its cgroup, in cores; 0 = none
  std::string reason;  // "2 of the machine's 8 cores: the affinity mask allows 2"
};
Cores usable_cores();
/// The part of usable_cores() that decides; for tests.
Cores decide_cores(int online, int affinity, double quota);

/// Bytes; 0 where unknown.
std::int64_t memory_total();
std::int64_t memory_available();
/// The smaller of memory_total() and the cgroup's limit.
std::int64_t memory_limit();
/// The smaller of memory_total() and what the cgroup's limits still leave.
std::int64_t memory_left();
/// Memory of this process now, and the highest since its start: all resident pages but those of
/// files (program, libraries), which processes share, which the kernel can drop, and whose number
/// depends on what the page cache holds. The highest is exact where no file was read in since then.
std::int64_t memory_bytes();
std::int64_t peak_memory_bytes();

std::string processor_name();
std::string host_name();
/// Processes with the same name have one monotonic clock: the same running kernel, the same time
/// namespace. Two hosts may well have one host name. Empty: unknown.
std::string clock_name();

}  // namespace observe
}  // namespace v0
}  // namespace trireme
