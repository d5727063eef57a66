// Progress: one live line on a terminal, plain lines at round steps otherwise.
//
//   ━━━━━━━━━━──── step 1,240 of 2,000 · loss 1.412 · 41,200 tokens/s · MFU 38 % ·
//   communication 2 % · input 0 % · 38 s left
//
// Speed and shares are those of the last five seconds, or of the last ten steps where these took
// longer. What is not known (how many steps there will be, how long input took, what the machine
// could do) is left out; in fp16 the loss scale is told, too.
//
// The live line leaves out whole fields where the terminal is too narrow for all of them: the loss
// scale and input first, then communication, MFU, the bar, tokens/s.
// Used by one thread. Time comes in with the figures; nothing here reads a clock.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/words.h"
#include "trireme/observe/events.h"

namespace trireme {
inline namespace v0 {
namespace observe {

// Their callers in train/ name them so.
using v0::bytes_text;
using v0::duration_text;
using v0::grouped;

struct ProgressOptions {
  long steps = 0;  // of the whole run; 0: not known
  long first = 0;  // steps done before this process began
  std::FILE* stream = stderr;
  bool terminal = false;  // the stream shows a live line (terminal.h)
  bool color = false;     // of that line
  int columns = 0;        // of that terminal; 0: ask it (80 where it does not say)
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  /// `figures.items` lives as long as this object.
  void step(const StepFigures& figures);
  /// A line of its own; the live line moves below it.
  void line(std::string_view text);
  /// Ends the live line.
  void finish();
  /// The seconds the remaining steps take at the pace so far; nullopt before the second step, and
  /// where their number is not known.
  std::optional<double> seconds_left() const;

 private:
  // Sums over the last steps; an old step fades.
  struct Recent {
    double steps = 0, seconds = 0, items = 0, communication = 0, input = 0, flops_share = 0;
    void add(const StepFigures& figures);
  };
  std::string text(int columns) const;
  bool due(long step) const;
  void draw();
  void erase();
  ProgressOptions options_;
  std::optional<StepFigures> last_;
  std::string live_;  // what stands on the terminal; empty: nothing does
  Recent recent_;
  std::optional<double> loss_;  // smoothed over about 20 steps
  double hidden_ = 0;           // seconds of steps since the live line was drawn
  long seen_ = 0, done_ = 0;
};

}  // namespace observe
}  // namespace v0
}  // namespace trireme
