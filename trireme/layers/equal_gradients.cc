#include "trireme/layers/equal_gradients.h"

#include <cstddef>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/weights_hash.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

void require_equal_gradients(comm::Communicator& group, std::span<const optim::OwnedSlice> slices) {
  std::vector<std::int64_t> least;
  for (const optim::OwnedSlice& slice : slices) {
    const auto bytes = static_cast<std::size_t>(slice.size()) * size_of(slice.master_dtype);
    const at::Tensor values = tensor::on_host(
        tensor::view_of(Buffer{const_cast<void*>(slice.gradient), bytes, DType::U8, slice.device}));
    least.push_back(static_cast<std::int64_t>(tensor_hash(
        {"", DType::U8, {}, {static_cast<const std::byte*>(values.const_data_ptr()), bytes}})));
  }
  std::vector<std::int64_t> most = least;
  const comm::OpOptions options{.label = "equal gradients"};
  group.all_reduce(Buffer::of(std::span(least)), ReduceOp::Min, options).wait();
  group.all_reduce(Buffer::of(std::span(most)), ReduceOp::Max, options).wait();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (least[i] == most[i]) continue;
    throw ConfigError(
        "the gradient of " + slices[i].name +
            " differs among ranks that compute a micro-batch together",
        {.rank = group.rank(),
         .operation = "strategy",
         .advice = "Its block must take its layers and attention from its LayerFactory, as those "
                   "of GPT and BERT do; or use parallel.context = 1, parallel.expert = 1 and "
                   "parallel.sequence = false."});
  }
}

}  // namespace trireme::inline v0::parallel
