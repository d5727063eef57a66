// The processes of a training job: ranks, servers, and the settings of a whole process.
#pragma once

#include <memory>

#include "trireme/net/transport.h"
#include "trireme/plan/tuning.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::inline v0::train {

struct Settings;

/// Joins the job and trains as train() (session.h): returns its exit code, throws errors.
int run_training(int argc, char** argv, const WorkerSpec& spec);
/// The same for a server of that training.
int run_server(int argc, char** argv, const WorkerSpec& spec);

/// The same for a rank that is a thread of a simulated group (net/sim), with its transport
/// `transport`. Its times are those of the virtual clock.
int run_simulated_rank(std::shared_ptr<net::Transport> transport,
                       std::shared_ptr<const plan::Tuning> tuning, const WorkerSpec& spec);
/// Call once per process, before run_simulated_rank().
void set_up_training(const WorkerSpec& spec);
/// Applies the settings that hold for the whole process, such as kernel threads and the kernel
/// table. Call before anything computes.
void set_up_process(const Settings& settings);

}  // namespace trireme::inline v0::train
