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
  /// A reader that takes nothing is waited for only until `signals` is readable: whoever wants to
  /// stop the job need not read it. What does not fit at once is dropped from then on.
  void give_up_at(int signals) noexcept { signals_ = signals; }

 private:
  const LaunchOptions& options_;
  int signals_ = -1;
  bool in_a_hurry_ = false;
  std::vector<int> files_;  // by rank, with log_dir
};

/// All of it, whatever write() takes at once.
void write_all(int descriptor, std::string_view text) noexcept;
/// The same, but no further once it would block and `interrupt` is readable; false then.
bool write_until(int interrupt, int descriptor, std::string_view text) noexcept;

}  // namespace launch
}  // namespace v0
}  // namespace trireme
