// What `trireme show overlap | zero1 | tensor | context | expert` draw: small steps of the
// production code on simulated ranks (cli/step_recorder.h). ConfigError where `ranks` is out of
// range.
#pragma once

#include "trireme/show/recorded_step.h"

namespace trireme {
inline namespace v0 {
namespace cli {

/// A data-parallel step whose gradients are reduced while backward still runs, and after it.
show::RecordedStep record_overlap(int ranks);
/// A step of ZeRO-1, and what each rank keeps.
show::RecordedStep record_zero1(int ranks);
/// A step of tensor-parallel layers, and what each rank has of their parameters.
show::RecordedStep record_tensor(int ranks);
/// Ring attention forward and back, and which keys a query meets on which rank in which hop.
show::RecordedStep record_context(int ranks);
/// A mixture of experts forward and back, and which tokens travel to whose expert.
show::RecordedStep record_expert(int ranks);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
