#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <array>
#include <deque>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/layers/context/positions.h"
#include "trireme/strategy/given_share.h"
#include "trireme/strategy/strategy_impl.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0 {
namespace {

using parallel::LocalVote;

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

// All ranks go through all batches even if one fails: the others wait for them, and learn of the
// error at the end.
std::vector<double> Strategy::Impl::evaluate(const std::vector<Batch>& batches,
                                             const std::vector<Loss>& sums) {
  parallel::require_agreement(*env.world, places(),
                              parallel::given_batches(batches, places(), env.world->rank()),
                              "validation", env.host);
  const c10::AutoGradMode no_grad(false);
  const auto scope = use_layers();
  const auto common = common_weights();
  parts.train(false);
  std::deque<parallel::ScalarTree> trees;  // by batch, then by sum; the reductions point into it
  std::vector<Work> works;
  std::exception_ptr error;
  std::int64_t count = 0;
  sync->begin(0, evaluation_order(batches));
  for (const Batch& batch : batches) {
    const std::vector<double> values = sums_of(batch, sums, error);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      trees.emplace_back(batch.total, plan.assignment, grid.data().rank());
      for (std::size_t at = i; at < values.size(); at += sums.size()) trees.back().add(values[at]);
      if (grid.last != nullptr)
        works.push_back(trees.back().reduce(*grid.last, env.reduce, "validation loss"));
    }
    count += batch.global_count;
  }
  conclude(std::move(works), error, "validation");
  std::vector<double> means(sums.size());
  for (std::size_t i = 0; i < trees.size() && grid.last != nullptr; ++i)
    means[i % sums.size()] += trees[i].sum();
  if (runner) runner->tell_all(means);
  for (double& mean : means) mean = count > 0 ? mean / static_cast<double>(count) : 0.0;
  return means;
}

// By micro-batch, then by sum; 0 on ranks without the last block. After an error computes only what
// other ranks of a pipeline wait for.
std::vector<double> Strategy::Impl::sums_of(const Batch& given, const std::vector<Loss>& sums,
                                            std::exception_ptr& error) {
  std::vector<double> values(given.micro.size() * sums.size(), 0);
  if (error && !runner) return values;
  try {
    Batch batch = given;
    for (MicroBatch& micro : batch.micro) micro = local_shard(micro, even(micro));
    each_output(batch, [&](std::size_t micro, const models::Value& output) {
      for (std::size_t i = 0; i < sums.size(); ++i)
        values[micro * sums.size() + i] =
            of_all_ranks(sums[i](output, batch.micro[micro]), even(given.micro[micro]))
                .item<double>();
    });
  } catch (...) {
    keep(std::current_exception(), error);
  }
  return values;
}

// Keeps the first error of a forward pass. Ranks that share a layer cannot go on without this rank,
// so it is then thrown at once.
void Strategy::Impl::keep(const std::exception_ptr& thrown, std::exception_ptr& error) {
  if (!error) error = thrown;
  if (grid.layer == nullptr) return;
  failed = true;
  parts.train(true);
  give_up(thrown);
  std::rethrow_exception(thrown);
}

void Strategy::Impl::give_up(const std::exception_ptr& error) {
  const std::array<comm::Communicator*, 8> groups = {env.world,    grid.layer,   grid.expert,
                                                     grid.context, grid.tensor,  grid.cut,
                                                     &grid.data(), grid.pipeline};
  const std::set<comm::Communicator*> distinct(groups.begin(), groups.end());
  parallel::give_up(*env.world, std::vector(distinct.begin(), distinct.end()), error);
}

// Ends forward passes that all ranks took part in. Throws on every rank if one has an error: its
// own, or StepRefused naming a rank that has one.
void Strategy::Impl::conclude(std::vector<Work> works, const std::exception_ptr& error,
                              const std::string& operation) {
  parts.train(true);
  LocalVote local_vote;
  if (error) local_vote.refuse(describe(error));
  works.push_back(sync->finish());
  if (runner) works.push_back(runner->sent());
  const parallel::Vote vote(*env.world, local_vote);
  works.push_back(vote.work());
  Work::all(works).wait();
  const parallel::Verdict verdict = vote.result();
  if (runner) runner->settle(verdict.ok);
  if (error) std::rethrow_exception(error);
  if (verdict.ok) return;
  throw StepRefused(static_cast<ExitCode>(verdict.exit_code),
                    "rank " + std::to_string(verdict.refusing_rank) + " could not go through the " +
                        operation + ": " + verdict.reason,
                    {.rank = env.world->rank(),
                     .host = env.host,
                     .operation = operation,
                     .peer = verdict.refusing_rank,
                     .advice = "The weights are as they were; look at that rank's data and loss."});
}

// Calls `output` with the last block's value of every micro-batch, on the ranks that have the
// block.
void Strategy::Impl::each_output(const Batch& batch,
                                 const parallel::PipelineRunner::Output& output) {
  if (runner) return runner->forward_only(batch.micro, passes_of(batch.total), output);
  for (std::size_t i = 0; i < batch.micro.size(); ++i) output(i, forward_alone(batch.micro[i]));
}

models::Value Strategy::Impl::forward_alone(const MicroBatch& micro) {
  if (pins) pins->begin(micro.index);
  return stage().forward(micro, 0, plan.shards_weights ? pins->enter() : parallel::Stage::Enter());
}

// A pipeline completes a batch before the next one.
std::vector<parallel::Use> Strategy::Impl::evaluation_order(
    const std::vector<Batch>& batches) const {
  if (!plan.shards_weights) return {};
  std::vector<std::uint32_t> rounds;
  for (const Batch& batch : batches)
    rounds.push_back(static_cast<std::uint32_t>(rounds_of(batch.total)));
  if (runner) return runner->uses(rounds, false);
  return order_of(std::accumulate(rounds.begin(), rounds.end(), std::size_t{0}), false);
}

models::Value Strategy::Impl::infer(const MicroBatch& whole) {
  const bool alone = has_whole_weights();
  if (!alone)
    parallel::require_agreement(*env.world, places(), parallel::given_micro_batch(whole),
                                "inference", env.host);
  const c10::AutoGradMode no_grad(false);
  const auto scope = use_layers();
  parts.train(false);
  sync->begin(0, order_of(plan.shards_weights ? 1 : 0, false));
  std::exception_ptr error;
  models::Value value;
  try {
    const MicroBatch micro = local_shard(whole, false);
    value = runner ? runner->last_value(micro) : forward_alone(micro);
  } catch (...) {
    keep(std::current_exception(), error);
  }
  if (alone) {
    parts.train(true);
    sync->finish().wait();
    if (error) std::rethrow_exception(error);
    return value;
  }
  conclude({}, error, "inference");
  if (runner) value = runner->tell_all(std::move(value));
  if (grid.context != nullptr)
    for (at::Tensor& tensor : value) tensor = all_positions(tensor, *grid.context);
  return value;
}

}  // namespace trireme::inline v0
