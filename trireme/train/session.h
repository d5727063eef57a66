// Session: the settings, the data and the Job of a training's process, from its start to its end,
// while the job's ranks may change. train() runs the training on this rank.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "trireme/job/job.h"
#include "trireme/observe/events.h"
#include "trireme/plan/tuning.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/config/worker_spec.h"
#include "trireme/train/run/run_data.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {

/// How a process gets its Job: it joins one, or is a rank that is simulated over `transport`.
struct Entry {
  int argc = 0;
  char** argv = nullptr;
  std::shared_ptr<net::Transport> transport = nullptr;
  std::shared_ptr<const plan::Tuning> tuning = nullptr;
};

struct Session {
  Session(const Entry& entry, WorkerSpec given);
  /// Warns of events that could not be written.
  ~Session();
  /// Whether each worker trains on its own, with the servers.
  bool alone() const;
  /// The job of one rank of a worker that trains on its own and whose optimizer is on the servers.
  /// Only rank 0 validates and writes. Null: this rank trains together with the others.
  std::unique_ptr<Job> own_job() const;
  /// The batches that this rank reads. Workers that train on their own read different ones.
  BatchesOptions batches() const;

  const WorkerSpec spec;
  const RunFolder folder;
  const Settings settings;
  const RunData data;
  const bool simulated;
  Job job;
  // These outlive a change of the ranks.
  std::optional<observe::StepFigures> last_step = {};
  std::deque<std::string> unwritten_events = {};
};

/// Steps of a WorkerSpec::trial; the last one is measured.
inline constexpr long kTrialSteps = 2;

/// Trains to the end or to a stop signal. Returns the exit code (0, 130, 143); throws errors.
int train(Session& session);

}  // namespace trireme::inline v0::train
