// Report: the printed lines and the files of a training run. The Trainer uses it, and so does Log
// (log.h). On ranks other than 0 it is silent.
//
// With `json`, standard output has events only, and printed lines go to standard error. A file that
// cannot be written any more, for example on a full disk, does not end the training: a warning says
// so once. Events are kept in memory until they can be written.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/observe/events.h"
#include "trireme/observe/progress.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/ps/figures.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/report/straggler_log.h"
#include "trireme/train/run/run_files.h"

namespace trireme::inline v0::train {

struct ReportOptions {
  bool silent = false, json = false, terminal = false;
  int ranks = 1;
  bool goes_on = false;  // a training under way: its files are not needed to begin, either
  /// Events that the run's Report before could not write, and then those that this one could not; if
  /// null, they are lost with it.
  std::deque<std::string>* unwritten = nullptr;
  Duration open_again = std::chrono::seconds(10);  // between attempts to open events.jsonl
  long steps = 0, first = 0;         // steps of the whole run (0 = not known); steps done before
  std::string title, subtitle;       // of the plot
  std::string unit = "nats a byte";  // of the loss; may be empty
  std::string items = "tokens";      // a mean loss is over these
};

/// The figures of the whole run, for the closing table.
struct Outcome {
  std::optional<double> first_validation, last_validation;  // none: the evaluator validates
  double predicted_step = 0, measured_step = 0;    // seconds; measured: the median; 0: not known
  double measured_seconds = 0;                     // of the whole run
  double predicted_bytes = 0, measured_bytes = 0;  // measured: of the rank with the most
  double predicted_device_bytes = 0, measured_device_bytes = 0;  // of tensors; 0: not known
  /// Bytes of the rank with the most, on the host; 0: none, or not known.
  struct Keeping {
    double predicted_snapshot = 0, snapshot = 0;  // while a checkpoint is written
    double predicted_copies = 0, copies = 0;      // checkpoint.memory
    double sent = 0, waited = 0;  // per step: bytes of copies, seconds that no step hid
  };
  Keeping keeping;
  bool one_process = false;  // ranks are threads; measured is their total
  std::string sample;
  std::optional<ps::ServerFigures> servers;  // of workers that train on their own
};

class Report {
 public:
  /// Throws ResourceError if the files cannot be written to, unless the training `goes_on`.
  Report(const RunFiles& folder, ReportOptions options);
  ~Report();
  void line(const std::string& text);
  /// Replaces `figures.items` by the report's own.
  void step(observe::StepFigures figures);
  /// The mean loss over `count` items, and the share of right answers if it is known.
  void validation(long step, double loss, long count,
                  std::optional<double> accuracy = std::nullopt);
  /// Writes the servers' counts after `step`; also draws staleness.svg.
  void servers(long step, const ps::ServerFigures& figures);
  /// The loss of the trigram baseline. `told`: it is in the run's events and has been printed.
  void trigram(double loss, bool told = false);
  /// The run continues after `step`, from this checkpoint.
  struct Resuming {
    long step = 0;
    int ranks = 1, servers = 0;
    std::string checkpoint;  // its path
  };
  void resumed(const Resuming& from);
  /// The ranks have changed after `step`, and have taken their first step since.
  struct Regrouping {
    long step = 0, epoch = 0;
    int ranks = 0;
    std::string cause;
    long steps_repeated = 0;  // that had been done, and are done again
    double seconds = 0;       // from the news to the end of that step
  };
  void regrouped(const Regrouping& change);
  /// After `step`, ranks compute other numbers of micro-batches.
  void shares(long step, const ShareChange& change);
  /// Which rank came last to the steps so far; nothing on one rank.
  void stragglers();
  /// All ranks skipped this step.
  void skipped(long step, const std::string& why);
  /// A checkpoint is complete.
  void saved(const SavedReport& saved);
  /// Training ends after `step`, since the validation loss has not fallen since `best_step`.
  void early_stop(long step, double best_loss, long best_step);
  /// The time of the remaining steps at the pace of the first ones.
  void expected(double seconds);
  /// Redraws loss.svg from the run's losses so far.
  void plot();
  void finish(const Outcome& outcome);
  /// Ends the progress line.
  void close() { progress_.finish(); }

 private:
  struct Output {
    const char* name;
    bool failing = false;  // and a warning has said so
  };
  template <class Write>
  void attempt(Output& output, const Write& write);
  void open_events();
  void open_board();
  void write(const observe::Event& event);
  void scalar(std::string_view tag, long step, double value);
  std::string with_unit(double loss) const;
  void losses(const Outcome& outcome);
  void table_of_servers(const ps::ServerFigures& figures);

  const RunFiles folder_;
  ReportOptions options_;
  observe::EventWriter events_;
  observe::TensorBoardWriter board_;
  TimePoint open_again_{};
  Output events_output_{"events.jsonl"}, board_output_{"tensorboard/"};
  Output plot_output_{"loss.svg"}, staleness_output_{"staleness.svg"};
  observe::Progress progress_;
  StragglerLog stragglers_;
  observe::History history_;  // of the run, also before this start
  long step_ = 0;             // the last one
  std::optional<double> trigram_, noise_scale_;
};

/// Warns if there are `events` that will never be in the run's file.
void warn_of_lost(std::size_t events, const RunFiles& folder);

}  // namespace trireme::inline v0::train
