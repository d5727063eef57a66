#include <c10/core/GradMode.h>

#include <algorithm>
#include <deque>

#include "trireme/parallel/strategy_impl.h"

namespace trireme {
inline namespace v0 {

std::vector<double> Strategy::Impl::evaluate(const std::vector<Batch>& batches,
                                             const std::vector<Loss>& sums) {
  const c10::AutoGradMode no_grad(false);
  const auto common = common_weights();
  stage.train(false);
  std::deque<parallel::ScalarTree> trees;  // by batch, then by sum; the reductions point into it
  std::vector<Work> works;
  std::int64_t count = 0;
  const kernel::Assignment shares = kernel::contiguous(seat.world->size());
  sync->begin(0, order_of(evaluation_rounds(batches), false));
  for (const Batch& batch : batches) {
    const std::size_t first = trees.size();
    for (std::size_t i = 0; i < sums.size(); ++i)
      trees.emplace_back(batch.total, shares, seat.world->rank());
    for (const MicroBatch& micro : batch.micro) {
      const models::Value output =
          stage.forward(micro, 0, plan.shards_weights ? pins(false) : nullptr);
      for (std::size_t i = 0; i < sums.size(); ++i)
        trees[first + i].add(sums[i](output, micro).item<double>());
    }
    for (std::size_t i = 0; i < sums.size(); ++i)
      works.push_back(trees[first + i].reduce(*seat.world, seat.reduce, "validation loss"));
    count += batch.global_count;
  }
  works.push_back(sync->finish());
  stage.train(true);
  Work::all(works).wait();
  std::vector<double> means(sums.size());
  for (std::size_t i = 0; i < trees.size(); ++i) means[i % sums.size()] += trees[i].sum();
  for (double& mean : means) mean = count > 0 ? mean / static_cast<double>(count) : 0.0;
  return means;
}

// Forward passes of the rank of this group that has most of them.
std::size_t Strategy::Impl::evaluation_rounds(const std::vector<Batch>& batches) const {
  if (!plan.shards_weights) return 0;
  const int first = seat.world->rank() / plan.owners * plan.owners;
  std::size_t most = 0;
  for (int rank = first; rank < first + plan.owners; ++rank) {
    std::size_t rounds = 0;
    for (const Batch& batch : batches)
      rounds += kernel::contiguous_share(batch.total, seat.world->size(), rank).count;
    most = std::max(most, rounds);
  }
  return most;
}

models::Value Strategy::Impl::infer(const MicroBatch& micro) {
  const c10::AutoGradMode no_grad(false);
  stage.train(false);
  sync->begin(0, order_of(plan.shards_weights ? 1 : 0, false));
  models::Value value = stage.forward(micro, 0, plan.shards_weights ? pins(false) : nullptr);
  sync->finish().wait();
  stage.train(true);
  return value;
}

}  // namespace v0
}  // namespace trireme
