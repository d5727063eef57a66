// Refuses a step in which a gradient's sum overflows although every rank's part is finite. All
// ranks find the same parameter, so all refuse the step without another vote.
#pragma once

#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

/// Throws StepRefused (exit code 21) if a summed gradient holds an infinity or a NaN, naming the
/// first such parameter by `name_of(parameter)`. Reads each owned gradient once.
template <class NameOf>
void refuse_overflow(StepSync& sync, NameOf name_of, const comm::Communicator& world,
                     const std::string& host, long step) {
  const std::int64_t parameter = sync.first_overflow();
  if (parameter < 0) return;
  throw StepRefused(static_cast<ExitCode>(21),
                    "the gradient of " + name_of(static_cast<std::size_t>(parameter)) +
                        " is finite on every rank, but its sum over the micro-batches is not",
                    {.rank = world.rank(),
                     .host = host,
                     .operation = "step",
                     .step = step,
                     .advice = "Nothing was applied on any rank; lower the learning rate. If "
                               "comm.compression is f16, whose largest number is 65504, use "
                               "bf16: it is the gradient of the summed loss that is sent."});
}

}  // namespace trireme::inline v0::parallel
