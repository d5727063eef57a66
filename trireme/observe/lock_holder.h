// LockHolder: which process holds a folder, written so that another process can tell later whether
// it still runs.
//
// A process number alone says little: numbers are used again, containers count their own, and
// another host has others. So a holder is named with its kernel (boot id), its process namespace
// and its start time. Plain values.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace observe {

struct LockHolder {
  std::string host;             // its name, for people
  std::string machine;          // /etc/machine-id; empty: unknown
  std::string boot;             // of the running kernel; empty: unknown
  std::string processes;        // the namespace that `process` is a number of
  std::int64_t process = 0;     // its number
  std::int64_t start_time = 0;  // of the process, in the kernel's ticks
  std::string since;            // when it took the folder, "2026-11-22 17:45:03 UTC"

  static LockHolder this_process();
  std::string to_text() const;
  /// nullopt where the text is none that to_text() gives.
  static std::optional<LockHolder> from_text(std::string_view text);
  /// "process 4711 on host a, since 2026-11-22 17:45:03 UTC".
  std::string describe() const;

  friend bool operator==(const LockHolder&, const LockHolder&) = default;
};

enum class Running : std::uint8_t { Yes, No, Unknown };

/// Whether `holder` runs, as far as the process `self` can see. `shared`: several kernels may see
/// the folder at once.
Running is_running(const LockHolder& holder, const LockHolder& self, bool shared);

/// Whether several kernels may see the file system of `path` at once: true for those of a network,
/// and for every one that is not known.
bool is_shared_file_system(const std::string& path);

}  // namespace observe
}  // namespace v0
}  // namespace trireme
