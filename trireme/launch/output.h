// Output: where the ranks' lines go: this process's stdout and stderr with a prefix, one file per
// rank, or a callback. Called from one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/launch.h"

namespace trireme {
inline namespace v0 {
namespace launch {

class Output {
 public:
  /// Makes log_dir; ResourceError where it cannot.
  explicit Output(const LaunchOptions& options);
  ~Output();
  Output(const Output&) = delete;
  void line(int rank, bool error, std::string_view text);

 private:
  const LaunchOptions& options_;
  std::vector<int> files_;  // by rank, with log_dir
};

/// All of it, whatever write() takes at once.
void write_all(int descriptor, std::string_view text) noexcept;

}  // namespace launch
}  // namespace v0
}  // namespace trireme
