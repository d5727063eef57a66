// WorkerSpec: the arguments of a rank of a training job.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::inline v0::train {

/// The facts that a rank needs besides its run's config.toml. Passed between processes as one text.
struct WorkerSpec {
  std::string folder;          // of the run
  std::string trace;           // file for the merged timeline; empty = no trace
  std::string profile = {};    // file for rank 0's profile of kernels; empty = no profile
  std::string recompute = {};  // the policy that "auto" chose; empty = use memory.recompute
  std::string device = "cpu";  // the kind that train.device chose
  int spare_device = -1;       // one of this host that no rank takes, for the evaluator; -1: none
  std::string transport = {};  // chosen by "auto" for the device; empty = use comm.transport
  bool resume = false, json = false;
  bool validates = true;             // rank 0 does; false: it leaves that to the evaluator
  bool trial = false;                // only run two measured steps (cli/torch/fit/fit.h)
  bool terminal = false;             // output is a terminal: show a progress line
  std::int64_t predicted_bytes = 0;  // memory of a rank, from the plan
  double predicted_step = 0;         // seconds, from the plan; 0 = not known
  std::int64_t predicted_snapshot = 0, predicted_copies = 0;  // bytes of a rank, from the plan
  /// Seconds of a step if the job's cores did nothing but large products; 0 = not known.
  double product_seconds = 0;
  /// Descriptor of the data, read by the launcher (input/shared_corpus.h); -1: this rank reads it.
  int corpus = -1;
  int lock = -1;           // descriptor of the run folder's lock, kept open by this rank; -1: none
  std::string claim = {};  // digest of the checkpoints' lock (storage/claim.h); empty: unknown
  /// Start of the command: steady_now() on this host, in ns. train.max_time counts from it.
  std::int64_t began = 0;
  /// The same by the system's clock, from which another host computes `began`; 0: not needed.
  std::int64_t began_at = 0;

  /// For a process on any host: without descriptors and terminal of this one, with `began_at`.
  WorkerSpec elsewhere() const;
  std::string to_text() const;
  static WorkerSpec from_text(const std::string& text);
};

}  // namespace trireme::inline v0::train
