// Trainer: runs a training job on one rank: config -> Job -> Blocks -> Strategy -> steps.
//
// All ranks run the same code; only rank 0 prints, writes events and draws the plot. Sees the model
// and the layout only through Strategy. One per process (or simulated rank); not thread safe.
#pragma once

namespace trireme::inline v0::train {

struct Session;

/// Steps of a WorkerSpec::trial; the last one is measured.
inline constexpr long kTrialSteps = 2;

/// Trains to the end or to a stop signal, and returns the exit code (0, 130, 143). Errors are thrown.
int train(Session& session);

}  // namespace trireme::inline v0::train
