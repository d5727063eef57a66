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
  sync->begin(0, order_of(evaluation_rounds(batches), false));
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
  if (runner) return runner->forward_only(batch.micro, output);
  for (std::size_t i = 0; i < batch.micro.size(); ++i)
    output(i, stage().forward(batch.micro[i], 0, plan.shards_weights ? pins(false) : nullptr));
}

// Forward passes of the rank of this group that has most of them.
std::size_t Strategy::Impl::evaluation_rounds(const std::vector<Batch>& batches) const {
  if (!plan.shards_weights) return 0;
  const comm::Communicator& data = grid.data();
  const int first = data.rank() / plan.owners * plan.owners;
  std::size_t most = 0;
  for (int rank = first; rank < first + plan.owners; ++rank) {
    std::size_t rounds = 0;
    for (const Batch& batch : batches)
      rounds += kernel::contiguous_share(batch.total, data.size(), rank).count;
    most = std::max(most, rounds);
  }
  return most;
}

models::Value Strategy::Impl::infer(const MicroBatch& whole) {
  const MicroBatch micro = own_part(whole, false);
  const c10::AutoGradMode no_grad(false);
  const auto scope = use_layers();
  parts.train(false);
  sync->begin(0, order_of(plan.shards_weights ? 1 : 0, false));
  models::Value value =
      runner ? runner->infer(micro)
             : stage().forward(micro, 0, plan.shards_weights ? pins(false) : nullptr);
  sync->finish().wait();
  parts.train(true);
  if (grid.context != nullptr)
    for (at::Tensor& tensor : value) tensor = all_positions(tensor, *grid.context);
  return value;
}

}  // namespace v0
}  // namespace trireme
