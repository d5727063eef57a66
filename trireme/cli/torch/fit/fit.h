// train --fit: finds a layout that fits into the available memory, of the host or of the ranks'
// devices, by prediction and by trials of two steps, and sets it in the configuration. The training's
// bits stay the same, unless batch.micro must become smaller.
#pragma once

#include <optional>

#include "trireme/base/config/config.h"
#include "trireme/input/corpus.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::cli {

struct FitOptions {
  int ranks = 1;
  int ranks_here = 1;   // of one host, the most; they share its memory and cores
  bool new_job = true;  // batch.micro may become smaller if nothing fits otherwise
  bool tries = true;    // run trials; false: predict only
  bool json = false;
};

/// Prints the candidates, as a table or as "fit" events, and sets parallel.sync, parallel.shard,
/// train.lanes, memory.recompute and perhaps batch.micro. Throws ConfigError if nothing fits.
/// On the CPU, measures the speed of this machine's matrix products for about 20 ms.
void fit(config::Config& config, const train::Settings& settings, const input::Corpus& corpus,
         const FitOptions& options);

/// Prints the predicted candidates without choosing one, for use with a plan that does not fit. Returns
/// whether any of them does. Prints nothing and returns nullopt for local_sgd and its relatives, whose
/// other layouts would be other trainings, and where a device's host has too little memory.
std::optional<bool> show_what_fits(const config::Config& config, const plan::TrainingPlan& plan,
                                   const FitOptions& options);
/// The same, of those that are predicted to take clearly less than `plan`, whose training ran out of a
/// device's memory.
void show_what_takes_less(const config::Config& config, const plan::TrainingPlan& plan,
                          const FitOptions& options);

}  // namespace trireme::inline v0::cli
