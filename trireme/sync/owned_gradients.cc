#include "trireme/sync/owned_gradients.h"

#include "trireme/kernel/leaf_sum.h"
#include "trireme/optim/optimizer.h"

namespace trireme::inline v0::parallel {

std::vector<double> squares_of(std::span<const optim::OwnedSlice> slices) {
  std::vector<double> squares;
  for (const optim::OwnedSlice& slice : slices) optim::chunk_squares(slice, squares);
  return squares;
}

std::int64_t first_not_finite(std::span<const optim::OwnedSlice> slices) {
  for (const optim::OwnedSlice& slice : slices) {
    const auto count = static_cast<std::size_t>(slice.size());
    if (!kernel::all_finite(slice.gradient, slice.master_dtype, count)) return slice.parameter;
  }
  return -1;
}

}  // namespace trireme::inline v0::parallel
