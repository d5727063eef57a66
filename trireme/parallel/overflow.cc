#include "trireme/parallel/overflow.h"

#include "trireme/base/error.h"
#include "trireme/kernel/leaf_sum.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

void refuse_overflow(std::span<const optim::OwnedSlice> slices, const comm::Communicator& world,
                     const std::string& host, long step) {
  for (const optim::OwnedSlice& slice : slices) {
    const auto count = static_cast<std::size_t>(slice.size());
    if (kernel::all_finite(slice.gradient, slice.master_dtype, count)) continue;
    throw StepRefused(static_cast<ExitCode>(21),
                      "the gradient of " + slice.name +
                          " is finite on every rank, but its sum over the micro-batches is not",
                      {.rank = world.rank(),
                       .host = host,
                       .operation = "step",
                       .step = step,
                       .advice = "Nothing was applied on any rank; lower the learning rate."});
  }
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
