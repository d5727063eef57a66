// The steps that `trireme show overlap | zero1 | tensor | context | expert` draw: small steps of
// the production code on simulated ranks (cli/torch/show/step_recorder.h). All throw ConfigError if
// `ranks` is out of range.
#pragma once

#include "trireme/show/step/recorded_step.h"

namespace trireme::inline v0::cli {

/// A data-parallel step whose gradients are reduced while backward still runs, and after it.
show::RecordedStep record_overlap(int ranks);
/// A step of ZeRO-1, and which shards each rank keeps.
show::RecordedStep record_zero1(int ranks);
/// A step of tensor-parallel layers, and which shards of their parameters each rank has.
show::RecordedStep record_tensor(int ranks);
/// Ring attention forward and backward, and which keys each query meets on which rank in which hop.
show::RecordedStep record_context(int ranks);
/// A mixture of experts forward and backward, and which tokens are sent to which rank's expert.
show::RecordedStep record_expert(int ranks);

}  // namespace trireme::inline v0::cli
