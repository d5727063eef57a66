// Evaluates a run's checkpoints while it trains (checkpoint_evaluator.h): as the evaluator process
// of its job, on a device that no rank takes or else on the CPU, or by hand beside it. At a low
// priority.
#pragma once

#include <string>

#include "trireme/train/config/schema.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::inline v0::train {

/// ConfigError, with the reason, if a training with these settings has nothing for an evaluator.
/// `rank0_validates`: rank 0 validates as well.
void check_evaluator(const Settings& settings, bool rank0_validates);

/// The evaluator of a training job: until the workers have ended. Returns the exit code.
int run_evaluator(int argc, char** argv, const WorkerSpec& spec);
/// The same if another launcher than `trireme train` started it; the run is in `folder`.
int run_launched_evaluator(int argc, char** argv, const std::string& folder);
/// `trireme eval RUN --follow`: until no job trains the run any more, or a signal stops it. For a
/// process that is alone (rendezvous::ignore_launchers()). `device`: as train.device.
int follow_run(int argc, char** argv, const std::string& run, const std::string& device, bool json);

}  // namespace trireme::inline v0::train
