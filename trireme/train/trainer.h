// Trainer: one rank's way through a training job. config -> Job -> Blocks -> Strategy -> steps.
//
// All ranks run it alike; rank 0 alone prints, writes events and draws the plot. It sees the model
// and the layout only through Strategy. One per process (or seat); not thread safe.
#pragma once

#include <memory>

#include "trireme/net/transport.h"
#include "trireme/plan/tuning.h"
#include "trireme/train/worker_spec.h"

namespace trireme {
inline namespace v0 {
namespace train {

struct Settings;

/// Of a WorkerSpec::trial; the last one is what is measured.
inline constexpr long kTrialSteps = 2;

/// Joins the job, trains to the end or to a stop signal, and returns the exit code (0, 130, 143).
/// Errors are thrown.
int run_training(int argc, char** argv, const WorkerSpec& spec);

/// The same for a rank that is a thread and has a seat in a simulated group (net/sim): its times
/// are the virtual clock's.
int run_seat(std::shared_ptr<net::Transport> seat, std::shared_ptr<const plan::Tuning> tuning,
             const WorkerSpec& spec);
/// Once in a process, before run_seat().
void set_up_training(const WorkerSpec& spec);
/// What of a job's settings holds for the whole process: threads of a kernel, the kernel table.
/// Before anything computes.
void set_up_process(const Settings& settings);

}  // namespace train
}  // namespace v0
}  // namespace trireme
