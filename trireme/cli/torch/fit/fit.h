// train --fit: finds a layout that fits into the memory of the host or of the ranks' devices, by
// prediction and by trials of two steps, and sets it in the configuration. The training's bits stay
// the same, unless batch.micro must become smaller.
#pragma once

#include <optional>

#include "trireme/base/config/config.h"
#include "trireme/input/corpus.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::cli {

struct FitOptions {
  int ranks = 1;
  int ranks_here = 1;   // the most on one host; they share its memory and cores
  bool new_job = true;  // batch.micro may become smaller if nothing fits otherwise
  bool tries = true;    // run trials; false: predict only
  bool json = false;
};

/// Prints the candidates, as a table or as "fit" events, and sets parallel.sync, parallel.shard,
/// train.lanes, memory.recompute and perhaps batch.micro. Throws ConfigError if nothing fits.
/// On the CPU, measures this machine's kernels whose times are not known (train::KernelSpeeds).
void fit(config::Config& config, const train::Settings& settings, const input::Corpus& corpus,
         const FitOptions& options);

/// Prints the predicted candidates for a plan that does not fit, without choosing one. Returns
/// whether any fits. Prints nothing and returns nullopt for local_sgd and its relatives and for
/// servers, which have no other layouts, and if only a device's host has too little memory.
std::optional<bool> show_what_fits(const config::Config& config, const plan::TrainingPlan& plan,
                                   const FitOptions& options);
/// The same with a limit of 90 % of the bytes of `plan`, whose training ran out of device memory.
void show_what_takes_less(const config::Config& config, const plan::TrainingPlan& plan,
                          const FitOptions& options);

}  // namespace trireme::inline v0::cli
