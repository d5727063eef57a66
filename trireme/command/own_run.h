// This program as a child process whose output goes to a file: trainings that a command makes to
// measure something.
#pragma once

#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace command {

/// A folder below TMPDIR, removed at the end. ResourceError naming `operation` where there can be
/// none.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string operation);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const noexcept { return path_; }
  const std::string& operation() const noexcept { return operation_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string operation_, path_;
};

/// Runs this program with `arguments` and waits; both its streams go to the file `log` in `folder`.
/// The exit code; 128 + n where signal n ended it.
int run_self(const std::vector<std::string>& arguments, const std::string& log,
             const TemporaryFolder& folder);

}  // namespace command
}  // namespace v0
}  // namespace trireme
