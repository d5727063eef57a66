// Progress: one live line on a terminal; otherwise plain lines at round step numbers.
//
//   =========---- step 1,240 of 2,000 . loss 1.412 . 41,200 tokens/s . MFU 38 % .
//   communication 2 % . input 0 % . 38 s left
//
// Speed and shares are averages over the last five seconds, or the last ten steps if these took
// longer. Unknown figures (number of steps, time for input, the machine's peak) are left out. In
// fp16 the line also has the loss scale, on a device the peak memory of tensors.
//
// If the terminal is too narrow, the live line leaves out whole fields: first the loss scale and
// input, then communication, device memory, MFU, the bar, tokens/s. Used by one thread. Takes times
// from the figures; reads no clock.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/observe/events.h"

namespace trireme::inline v0::observe {

struct ProgressOptions {
  long steps = 0;  // of the whole run; 0: unknown
  long first = 0;  // steps done before this process began
  std::FILE* stream = stderr;
  bool terminal = false;  // the stream can show a live line (terminal.h)
  bool color = false;     // use color in that line
  int columns = 0;        // width of the terminal; 0: ask it (80 if it does not know)
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  /// `figures.items` must outlive this object.
  void step(const StepFigures& figures);
  /// Prints `text` as a line above the live line.
  void line(std::string_view text);
  /// Ends the live line.
  void finish();
  /// Seconds that the remaining steps take at the pace so far; nullopt before the second step and
  /// if their number is unknown.
  std::optional<double> seconds_left() const;

 private:
  // Weighted sums over the last steps; older steps weigh less.
  struct Recent {
    double steps = 0, seconds = 0, items = 0, communication = 0, input = 0, flops_share = 0;
    void add(const StepFigures& figures);
  };
  std::string text(int columns) const;
  bool due(long step) const;
  void draw();
  ProgressOptions options_;
  std::optional<StepFigures> last_;
  std::string live_;  // shown on the terminal now; empty: nothing
  Recent recent_;
  std::optional<double> loss_;  // smoothed over about 20 steps
  double hidden_ = 0;           // time of steps since the live line was last drawn, in seconds
  long seen_ = 0, done_ = 0;
};

}  // namespace trireme::inline v0::observe
