// Log: gives a user's own loop the output of `trireme train`: the progress line, and a folder with
// events.jsonl, tensorboard/ and, at the end, loss.svg. `trireme compare` reads the folder.
//
//     trireme::Log log(job, "runs/mine", {.steps = 1000});
//     for (auto& batch : data) log.step(strategy.step(batch, loss));
//
// With DataParallel; its backward() gives the log the loss over all ranks:
//
//     for (auto& micro : *loader) { parallel.backward(loss(net, micro)); parallel.step();
//                                   log.step(parallel); }
//
// Every rank has a Log; only rank 0's writes, and none communicates. One user thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/strategy/strategy.h"

namespace trireme::inline v0 {

class Batches;
class DataParallel;
class Job;

struct LogOptions {
  long steps = 0;  // of the whole run, for "of 1,000" and the remaining time; 0 = not known
  long first = 0;  // steps done before, as Checkpointer::resume() returns them
  std::string items = "tokens";    // what StepResult::count counts: tokens, samples
  std::string unit = {};           // of the loss, such as "nats a token"; may be empty
  std::string title = {};          // of the plot; empty: the folder's last name
  const Batches* input = nullptr;  // its waiting time is reported as input; must outlive the log
  bool json = false;               // also prints events on stdout; other lines go to stderr
};

class Log {
 public:
  /// Makes `folder` if it is missing. With `first` = 0, renames events that are already there
  /// (events.1.jsonl, ...) and starts a new file. Otherwise continues after step `first` and drops
  /// the events of later steps. Throws ResourceError if the folder cannot be written to.
  Log(const Job& job, const std::string& folder, LogOptions options = {});
  /// Calls finish(), unless an exception is unwinding the stack. Never throws.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Records one step. Its time is the time since the last call of any method, so it includes other
  /// work of the loop. Without a Strategy: log.step({.loss = 1.5, .count = 64}). A full
  /// disk is only a warning: the events are kept and written later.
  void step(const StepResult& result);
  /// Records a step for each global batch that has ended since the last call. Leaves unknown
  /// figures out: the loss without DataParallel::backward(), the norm without clip.
  void step(DataParallel& parallel);
  /// Records a validation after the last step: its mean loss over `count` items.
  void validation(double loss, std::int64_t count);
  /// Prints a line of text.
  void line(const std::string& text);
  /// Draws loss.svg and prints where the files are. Call no other method afterwards.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0
