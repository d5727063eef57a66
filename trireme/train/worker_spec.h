// WorkerSpec: what a rank of a training job is told when it is started.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {
inline namespace v0 {
namespace train {

/// What a worker is told beyond its run's config.toml; crosses the process boundary as one text.
struct WorkerSpec {
  std::string folder;          // of the run
  std::string trace;           // file that gets the merged timeline; empty = none is taken
  std::string recompute = {};  // what memory.recompute = "auto" came to; empty: as configured
  bool resume = false, json = false;
  bool trial = false;                // two steps that are measured (cli/fit.h), and no run
  bool terminal = false;             // people watch: a live line
  std::int64_t predicted_bytes = 0;  // memory of a rank, from the plan
  /// Of a step, over the matrix products that the job's cores compute at a time; 0: not known.
  double flops = 0;
  /// The text, read by the launcher (input/shared_corpus.h); -1: this rank reads it itself.
  int corpus = -1;
  int lock = -1;  // the run folder's, held as long as this rank has it open; -1: none
  /// When the command began, on rank 0's host: steady_now() in nanoseconds. train.max_time counts
  /// from it.
  std::int64_t began = 0;

  std::string to_text() const;
  static WorkerSpec from_text(const std::string& text);
};

}  // namespace train
}  // namespace v0
}  // namespace trireme
