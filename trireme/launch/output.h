// Output: writes the ranks' lines to this process's stdout and stderr with a prefix, to one file
// per rank, or to a callback. Called by one thread at a time. A file that cannot be written, as on
// a full disk, does not end the job: a warning names it, and later the file says how many lines it
// lacks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/descriptor.h"
#include "trireme/launch/launch.h"

namespace trireme::inline v0::launch {

class Output {
 public:
  /// Creates log_dir; throws ResourceError if it cannot.
  explicit Output(const LaunchOptions& options);
  void line(int rank, bool error, std::string_view text);
  /// Waits for a slow reader only until `signals` is readable, so that a job can be stopped
  /// although nobody reads. From then on, output that does not fit at once is dropped.
  void give_up_at(int signals) noexcept { signals_ = signals; }

 private:
  struct LogFile {
    std::string path;
    Descriptor file;
    std::int64_t missing = 0;  // lines that could not be written since the last one that could
    bool warned = false;
  };
  static void add(LogFile& log, std::string_view text);

  const LaunchOptions& options_;
  int signals_ = -1;
  bool in_a_hurry_ = false;
  std::vector<LogFile> files_;  // by rank, with log_dir
};

/// Writes all of `text`, in as many calls of write() as needed. Returns 0, or errno of what
/// prevented it.
int write_all(int descriptor, std::string_view text) noexcept;
/// The same, but stops and returns false when it would block while `interrupt` is readable, or
/// longer than `patience`.
bool write_until(int interrupt, int descriptor, std::string_view text,
                 Duration patience = Duration::max()) noexcept;
/// Writes a line to standard error. If it has no room there within a second, since nobody reads, the
/// rest of it is dropped: who supervises processes must not wait for a reader.
void say_line(const std::string& line) noexcept;
/// The same with "trireme: " before the line.
void say(const std::string& line) noexcept;

}  // namespace trireme::inline v0::launch
