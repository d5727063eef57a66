// The machine as this process sees it: cores, memory, names. Read from /proc, sysfs and cgroups.
//
// Only reads; thread safe. A missing file gives "unknown", not an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::observe {

struct Cores {
  int usable = 1;      // min(affinity, quota rounded up), at least 1
  int online = 1;      // in the machine
  int affinity = 1;    // in this process's affinity mask
  double quota = 0;    // of its cgroup, in cores; 0: none
  std::string reason;  // "2 of the machine's 8 cores: the affinity mask allows 2"
};
Cores usable_cores();
/// The numbers of the cores in this process's affinity mask, ascending; {0} if it cannot be read.
std::vector<int> affinity_cores();
/// The pure part of usable_cores(), for tests.
Cores decide_cores(int online, int affinity, double quota);

/// In bytes; 0: unknown.
std::int64_t memory_total();
std::int64_t memory_available();
std::int64_t swap_available();
/// The smaller of memory_total() and the cgroup's limit.
std::int64_t memory_limit();
/// The smaller of memory_total() and what the cgroup limits still allow.
std::int64_t memory_left();
/// Memory of this process now, and its maximum since the start, in bytes. Pages of files (program,
/// libraries) do not count: processes share them, the kernel can drop them, and their number
/// depends on the page cache. The maximum is exact if no page of a file was read after it.
std::int64_t memory_bytes();
std::int64_t peak_memory_bytes();

std::string processor_name();
std::string host_name();
/// Identifies a monotonic clock: processes with the same name share the running kernel and the time
/// namespace. (Two hosts may have the same host name.) Empty: unknown.
std::string clock_name();

}  // namespace trireme::inline v0::observe
