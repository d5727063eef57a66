#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <deque>

#include "trireme/parallel/context/positions.h"
#include "trireme/parallel/strategy_impl.h"
#include "trireme/tensor/convert.h"

namespace trireme {
inline namespace v0 {
namespace {

// [B, T/N, ...] of every rank -> [B, T, ...].
at::Tensor all_positions(const at::Tensor& own, comm::Communicator& group) {
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const at::Tensor all = at::empty(sizes, own.options());
  group
      .all_gather(tensor::to_buffer(own.contiguous()), tensor::to_buffer(all),
                  {.label = "gather positions"})
      .wait();
  return parallel::join_positions(all.unbind(), 1);
}

}  // namespace

std::vector<double> Strategy::Impl::evaluate(const std::vector<Batch>& batches,
                                             const std::vector<Loss>& sums) {
  const c10::AutoGradMode no_grad(false);
  const auto scope = use_layers();
  const auto common = common_weights();
  parts.train(false);
  std::deque<parallel::ScalarTree> trees;  // by batch, then by sum; the reductions point into it
  std::vector<Work> works;
  std::int64_t count = 0;
  const kernel::Assignment shares = kernel::contiguous(grid.data().size());
  sync->begin(0, evaluation_order(batches));
  for (const Batch& given : batches) {
    Batch batch = given;
    for (MicroBatch& micro : batch.micro) micro = own_part(micro, even(micro));
    const std::size_t first = trees.size();
    for (std::size_t i = 0; i < sums.size(); ++i)
      trees.emplace_back(batch.total, shares, grid.data().rank());
    each_output(batch, [&](std::size_t micro, const models::Value& output) {
      for (std::size_t i = 0; i < sums.size(); ++i)
        trees[first + i].add(
            of_all_ranks(sums[i](output, batch.micro[micro]), even(given.micro[micro]))
                .item<double>());
    });
    for (std::size_t i = 0; i < sums.size() && grid.last != nullptr; ++i)
      works.push_back(trees[first + i].reduce(*grid.last, seat.reduce, "validation loss"));
    count += batch.global_count;
  }
  works.push_back(sync->finish());
  parts.train(true);
  Work::all(works).wait();
  std::vector<double> means(sums.size());
  for (std::size_t i = 0; i < trees.size() && grid.last != nullptr; ++i)
    means[i % sums.size()] += trees[i].sum();
  if (runner) runner->tell_all(means);
  for (double& mean : means) mean = count > 0 ? mean / static_cast<double>(count) : 0.0;
  return means;
}

// The last block's value of every micro-batch, on the ranks that have that block.
void Strategy::Impl::each_output(const Batch& batch,
                                 const parallel::PipelineRunner::Output& output) {
  if (runner) {
    const auto own = static_cast<std::uint32_t>(batch.micro.size());
    return runner->forward_only(
        batch.micro, plan.shards_weights ? most_of_group(std::span(&batch.total, 1)) : own, output);
  }
  for (std::size_t i = 0; i < batch.micro.size(); ++i) output(i, forward_alone(batch.micro[i]));
}

models::Value Strategy::Impl::forward_alone(const MicroBatch& micro) {
  if (pins) pins->begin(micro.index);
  return stage().forward(micro, 0, plan.shards_weights ? pins->enter() : parallel::Stage::Enter());
}

// Micro-batches of batches of `totals`, of the rank of this group that has most of them.
std::uint32_t Strategy::Impl::most_of_group(std::span<const std::uint32_t> totals) const {
  const comm::Communicator& data = grid.data();
  const int first = data.rank() / plan.owners * plan.owners;
  std::uint32_t most = 0;
  for (int rank = first; rank < first + plan.owners; ++rank) {
    std::uint32_t count = 0;
    for (const std::uint32_t total : totals)
      count += kernel::contiguous_share(total, data.size(), rank).count;
    most = std::max(most, count);
  }
  return most;
}

// A pipeline comes to the end of a batch before the next one.
std::vector<parallel::Use> Strategy::Impl::evaluation_order(
    const std::vector<Batch>& batches) const {
  if (!plan.shards_weights) return {};
  std::vector<std::uint32_t> totals;
  for (const Batch& batch : batches) totals.push_back(batch.total);
  if (!runner) return order_of(most_of_group(totals), false);
  for (std::uint32_t& total : totals) total = most_of_group(std::span(&total, 1));
  return runner->uses(totals, false);
}

models::Value Strategy::Impl::infer(const MicroBatch& whole) {
  const MicroBatch micro = own_part(whole, false);
  const c10::AutoGradMode no_grad(false);
  const auto scope = use_layers();
  parts.train(false);
  sync->begin(0, order_of(plan.shards_weights ? 1 : 0, false));
  models::Value value = runner ? runner->infer(micro) : forward_alone(micro);
  sync->finish().wait();
  parts.train(true);
  if (grid.context != nullptr)
    for (at::Tensor& tensor : value) tensor = all_positions(tensor, *grid.context);
  return value;
}

}  // namespace v0
}  // namespace trireme
