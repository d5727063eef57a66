// Progress: one live line on a terminal, plain lines at round steps otherwise.
//
//   step 1,240 of 2,000 · loss 1.412 · validation 1.50 · 41,200 tokens/s · communication 2 % ·
//   input 0 % · 38 s left
//
// What is not known (how many steps there will be, how long input took) is left out; in fp16 the
// loss scale is told, too.
//
// The live line leaves out whole fields where the terminal is too narrow for all of them: the loss
// scale and input first, then communication, tokens/s, validation.
// Used by one thread. Time comes in with the figures; nothing here reads a clock.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/observe/events.h"

namespace trireme {
inline namespace v0 {
namespace observe {

struct ProgressOptions {
  long steps = 0;  // of the whole run; 0: not known
  long first = 0;  // steps done before this process began
  std::FILE* stream = stderr;
  bool terminal = false;  // the stream shows a live line
  int columns = 0;        // of that terminal; 0: ask it (80 where it does not say)
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  void step(const StepFigures& figures);
  void validation(double loss) { validation_ = loss; }
  /// A line of its own; the live line moves below it.
  void line(std::string_view text);
  /// Ends the live line.
  void finish();
  /// The seconds the remaining steps take at the pace so far; nullopt before the second step, and
  /// where their number is not known.
  std::optional<double> seconds_left() const;

 private:
  std::string text(const StepFigures& figures, int columns) const;
  bool due(long step) const;
  void erase();
  ProgressOptions options_;
  std::string live_;
  std::optional<double> validation_;
  double pace_ = 0;             // seconds a step, smoothed
  std::optional<double> loss_;  // smoothed over about 20 steps
  long seen_ = 0, done_ = 0;
};

/// "3 min 20 s", "42 s", "1 h 5 min"; "0.42 s" below ten seconds.
std::string duration_text(double seconds);
/// "12,345".
std::string grouped(long value);
/// "1.4 MB", "820 kB", "2.1 GB" (decimal).
std::string bytes_text(double bytes);

}  // namespace observe
}  // namespace v0
}  // namespace trireme
