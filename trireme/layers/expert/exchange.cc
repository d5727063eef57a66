#include "trireme/layers/expert/exchange.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/functions/second_derivative.h"

namespace trireme::inline v0::parallel {
namespace {

using comm::Communicator;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

using Counts = std::vector<std::int64_t>;  // of rows

// Sends sends[r] rows to each rank r, and receives receives[r] rows from it.
at::Tensor moved(const at::Tensor& rows, const Counts& sends, const Counts& receives,
                 Communicator& group) {
  const std::int64_t width = rows.size(1);
  const auto elements = [width](const Counts& counts) {
    std::vector<std::size_t> all;
    for (const std::int64_t count : counts) all.push_back(static_cast<std::size_t>(count * width));
    return all;
  };
  const at::Tensor packed = rows.contiguous();
  const at::Tensor out = at::empty({c10::sum_integers(receives), width}, rows.options());
  tensor::wait_for(group.all_to_all_v(tensor::to_buffer(packed), tensor::to_buffer(out),
                                      elements(sends), elements(receives), {.label = "experts"}),
                   out.device());
  return out;
}

class Move : public torch::autograd::Function<Move> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, Communicator* group,
                            const Counts& sends, const Counts& receives) {
    ctx->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    ctx->saved_data["sends"] = sends;
    ctx->saved_data["receives"] = receives;
    return moved(rows, sends, receives, *group);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    tensor::refuse_second_derivative();
    auto* group = reinterpret_cast<Communicator*>(ctx->saved_data["group"].toInt());
    return {moved(gradients[0], ctx->saved_data["receives"].toIntVector(),
                  ctx->saved_data["sends"].toIntVector(), *group),
            Variable(), Variable(), Variable()};
  }
};

// The rows that every rank has for each of this rank's experts: [ranks, E/N], in row-major order.
Counts counts_from_all(const Counts& counts, Communicator& group) {
  Counts sends = counts, all(counts.size());
  group
      .all_to_all(Buffer::of(std::span(sends)), Buffer::of(std::span(all)),
                  {.label = "expert counts"})
      .wait();
  return all;
}

Counts sums_of_rows(const Counts& matrix, std::size_t rows) {
  const std::size_t columns = matrix.size() / rows;
  Counts sums(rows, 0);
  for (std::size_t i = 0; i < matrix.size(); ++i) sums[i / columns] += matrix[i];
  return sums;
}

// The permutation of rows from the order (rank, expert) to the order (expert, rank).
at::Tensor by_expert(const Counts& of_rank_and_expert, std::size_t ranks) {
  const std::size_t experts = of_rank_and_expert.size() / ranks;
  Counts begins(of_rank_and_expert.size());
  std::exclusive_scan(of_rank_and_expert.begin(), of_rank_and_expert.end(), begins.begin(),
                      std::int64_t{0});
  const at::Tensor order =
      at::empty({c10::sum_integers(of_rank_and_expert)}, at::TensorOptions().dtype(at::kLong));
  auto* next = order.mutable_data_ptr<std::int64_t>();
  for (std::size_t expert = 0; expert < experts; ++expert) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t at = rank * experts + expert;
      std::iota(next, next + of_rank_and_expert[at], begins[at]);
      next += of_rank_and_expert[at];
    }
  }
  return order;
}

at::Tensor inverted(const at::Tensor& order) {
  return at::empty_like(order).scatter_(0, order, at::arange(order.numel(), order.options()));
}

}  // namespace

models::ExpertExchange expert_exchange(Communicator& group, int experts) {
  TRIREME_CHECK(experts % group.size() == 0);
  return [&group, experts](const at::Tensor& rows, const Counts& counts) -> models::Exchanged {
    TRIREME_CHECK(counts.size() == static_cast<std::size_t>(experts));
    const auto ranks = static_cast<std::size_t>(group.size());
    const Counts here = counts_from_all(counts, group);
    const Counts sends = sums_of_rows(counts, ranks), receives = sums_of_rows(here, ranks);
    const at::Tensor order = by_expert(here, ranks).to(rows.device()), back_order = inverted(order);
    Counts of_expert(counts.size() / ranks, 0);
    for (std::size_t i = 0; i < here.size(); ++i) of_expert[i % of_expert.size()] += here[i];
    return {.rows = Move::apply(rows, &group, sends, receives).index_select(0, order),
            .counts = std::move(of_expert),
            .back = [&group, sends, receives, back_order](const at::Tensor& made) {
              return Move::apply(made.index_select(0, back_order), &group, receives, sends);
            }};
  };
}

}  // namespace trireme::inline v0::parallel
