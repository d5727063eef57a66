// Report: everything that a training run tells people and files: the Trainer's, and under a Log
// (log.h) that of a loop of one's own. Rank 0 has one; the others have one that is silent.
//
// With json, standard output holds events only, and people's lines go to standard error.
#pragma once

#include <optional>
#include <string>

#include "trireme/observe/events.h"
#include "trireme/observe/progress.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/train/run_folder.h"

namespace trireme {
inline namespace v0 {
namespace train {

struct ReportOptions {
  bool silent = false, json = false, terminal = false;
  long steps = 0, first = 0;         // of the whole run (0: not known); done before
  std::string title, subtitle;       // of the plot
  std::string unit = "nats a byte";  // of the loss; may be empty
  std::string items = "tokens";      // what a loss is a mean over
};

/// The figures of the whole run, for the closing table.
struct Outcome {
  double first_validation = 0, last_validation = 0;
  std::optional<double> predicted_seconds;
  double measured_seconds = 0;
  double predicted_bytes = 0, measured_bytes = 0;  // of the rank with most
  bool one_process = false;                        // or of all ranks, which are threads
  std::string sample;
};

class Report {
 public:
  Report(const RunFolder& folder, ReportOptions options);
  void line(const std::string& text);
  /// `items` of the figures is the report's own.
  void step(observe::StepFigures figures);
  /// The loss over `count` items, and the share of right answers where the model answers something.
  void validation(long step, double loss, long count,
                  std::optional<double> accuracy = std::nullopt);
  /// The baseline, once it is counted.
  void trigram(double loss);
  /// After the third step: how long the rest takes.
  void expected(double seconds);
  /// Draws loss.svg anew from the events so far.
  void plot();
  void finish(const Outcome& outcome);
  /// Ends the live line.
  void close() { progress_.finish(); }

 private:
  std::string with_unit(double loss) const;

  RunFolder folder_;
  ReportOptions options_;
  observe::EventWriter events_;
  observe::TensorBoardWriter board_;
  observe::Progress progress_;
  std::optional<double> trigram_;
};

}  // namespace train
}  // namespace v0
}  // namespace trireme
