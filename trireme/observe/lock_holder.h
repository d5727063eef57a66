// LockHolder: names the process that holds a folder, so that others can tell whether it still runs.
//
// A process number is not enough: it may be reused, and each host and container has its own. So a
// holder is named with its kernel (boot id), its process namespace and its start time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::inline v0::observe {

struct LockHolder {
  std::string host;             // its name, for people
  std::string machine;          // /etc/machine-id; empty: unknown
  std::string boot;             // id of the running kernel; empty: unknown
  std::string processes;        // the namespace of `process`; see /proc/self/ns/pid
  std::int64_t process = 0;     // process number
  std::int64_t start_time = 0;  // of the process, in the kernel's ticks
  std::string since;            // when it took the folder, "2026-11-22 17:45:03 UTC"

  static LockHolder this_process();
  std::string to_text() const;
  /// nullopt if to_text() cannot have written `text`.
  static std::optional<LockHolder> from_text(std::string_view text);
  /// "process 4711 on host a, since 2026-11-22 17:45:03 UTC".
  std::string describe() const;

  friend bool operator==(const LockHolder&, const LockHolder&) = default;
};

enum class Running : std::uint8_t { Yes, No, Unknown };

/// Whether `holder` runs, as far as process `self` can see. `shared`: is_shared_file_system().
Running is_running(const LockHolder& holder, const LockHolder& self, bool shared);

/// Whether several kernels may use the file system of `path` at once; true if it is unknown.
bool is_shared_file_system(const std::string& path);

}  // namespace trireme::inline v0::observe
