// Log: what `trireme train` shows and writes, for a loop of one's own: the progress line, and a
// folder with events.jsonl, tensorboard/ and, at the end, loss.svg. `trireme compare` takes it.
//
//     trireme::Log log(job, "runs/mine", {.steps = 1000});
//     for (auto& batch : data) log.step(strategy.step(batch, loss));
//
// With DataParallel, and its backward() so that the log knows the loss of all ranks:
//
//     for (auto& micro : *loader) { parallel.backward(loss(net, micro)); parallel.step();
//                                   log.step(parallel); }
//
// Every rank has one; rank 0's alone writes, and none of them communicates. One user thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/parallel/strategy.h"

namespace trireme {
inline namespace v0 {

class Batches;
class DataParallel;

struct LogOptions {
  long steps = 0;  // of the whole run, for "of 1,000" and the time that is left; 0: not known
  long first = 0;  // steps done before, as Checkpointer::resume() returns them
  std::string items = "tokens";    // what StepResult::count counts: tokens, samples
  std::string unit = {};           // of the loss, where it has one: "nats a token"
  std::string title = {};          // of the plot; empty: the folder's last name
  const Batches* input = nullptr;  // its waiting time is reported as input; it outlives the log
  bool json = false;               // events on standard output, too; people's lines go to stderr
};

class Log {
 public:
  /// Makes `folder` where it is missing. `first` = 0 starts anew: events that lie there are kept
  /// under another name (events.1.jsonl …); else it goes on after step `first`, and what the
  /// folder says of later ones is dropped. Throws ResourceError where it cannot be written.
  Log(const Job& job, const std::string& folder, LogOptions options = {});
  /// finish(), unless an exception passes through. Never throws.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// One more step was taken. Its time is that since the call before, of step() or another, so what
  /// the loop does besides counts, too. Without a Strategy: log.step({.loss = 1.5, .count = 64}).
  /// Throws ResourceError where the disk is full.
  void step(const StepResult& result);
  /// The global batches that have ended since the call before, each a step; none may have. What is
  /// not known is left out: the loss without DataParallel::backward(), the norm without clip.
  void step(DataParallel& parallel);
  /// A validation after the last step: its mean loss over `count` items.
  void validation(double loss, std::int64_t count);
  /// A line for people.
  void line(const std::string& text);
  /// Draws loss.svg and says where everything is. Nothing may follow it.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace trireme
