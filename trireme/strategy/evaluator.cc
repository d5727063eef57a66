#include "trireme/strategy/evaluator.h"

#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/strategy/given_share.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

// Micro-batches in a rank's schedule. Ranks that share weights take the most that one of them has.
std::uint32_t Evaluator::passes_of(std::uint32_t micro_batches) const {
  return setup_.plan.passes_of(setup_.grid.data().rank(), micro_batches,
                               setup_.plan.shards_weights);
}

// Ranks that look for a request to stop conclude each batch. A pipeline completes a batch before
// the next one anyway.
Evaluator::Result Evaluator::evaluate(
    const std::vector<Batch>& batches, const std::vector<Loss>& sums, bool until_stop,
    const std::function<std::shared_ptr<void>()>& common_weights) {
  require_agreement(*setup_.env.world, places_,
                    given_batches(batches, places_, setup_.env.world->rank()), "validation",
                    setup_.env.host);
  const c10::AutoGradMode no_grad(false);
  const auto scope = setup_.layers.use();
  const auto common = common_weights();
  const std::span all(batches);
  const std::size_t together = until_stop ? 1 : all.size();
  std::vector<double> means(sums.size());
  for (std::size_t at = 0; at < all.size(); at += together) {
    // Ranks that only regroup complete the validation.
    const int asked = until_stop ? setup_.env.stop_signal() : 0;
    const int stop_signal =
        add(all.subspan(at, together), sums, asked > kRanksChange ? asked : 0, means);
    if (stop_signal != 0 && at + together < all.size()) return {{}, stop_signal};
  }
  runner_.tell_all(means);
  std::int64_t count = 0;
  for (const Batch& batch : batches) count += batch.global_count;
  for (double& mean : means) mean = count > 0 ? mean / static_cast<double>(count) : 0.0;
  return {std::move(means)};
}

// Adds the sums over `batches` to `totals`, on ranks with the last block. Returns the stop signal
// on which the ranks agree; 0: none. A rank goes through all batches even if one fails: the others
// wait for it, and learn of the error at the end.
int Evaluator::add(std::span<const Batch> batches, const std::vector<Loss>& sums, int stop_signal,
                   std::vector<double>& totals) {
  parts_.train(false);
  trees_.clear();
  std::vector<Work> works;
  std::exception_ptr error;
  std::vector<std::uint32_t> passes;
  for (const Batch& batch : batches) passes.push_back(passes_of(batch.total));
  sync_.begin(0, runner_.uses(passes, false));
  for (const Batch& batch : batches) {
    const std::vector<double> values = sums_of(batch, sums, error);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      trees_.emplace_back(batch.total, setup_.plan.assignment, setup_.grid.data().rank());
      for (std::size_t at = i; at < values.size(); at += sums.size()) trees_.back().add(values[at]);
      if (setup_.grid.last != nullptr)
        works.push_back(
            trees_.back().reduce(*setup_.grid.last, setup_.env.reduce, "validation loss"));
    }
  }
  const int agreed = conclude(std::move(works), error, "validation", stop_signal);
  for (std::size_t i = 0; i < trees_.size() && setup_.grid.last != nullptr; ++i)
    totals[i % sums.size()] += trees_[i].sum();
  return agreed;
}

// By micro-batch, then by sum; 0 on ranks without the last block. After an error, computes only
// values that other ranks of a pipeline wait for.
std::vector<double> Evaluator::sums_of(const Batch& given, const std::vector<Loss>& sums,
                                       std::exception_ptr& error) {
  std::vector<at::Tensor> values(given.micro.size() * sums.size());
  if (error && setup_.grid.pipeline == nullptr) return tensor::numbers_of(values);
  try {
    Batch batch = given;
    for (MicroBatch& micro : batch.micro)
      micro = on_device(setup_.layers.cut(micro, Sequences::CutIfEven), device());
    runner_.forward_only(
        batch.micro, passes_of(batch.total), [&](std::size_t micro, const models::Value& output) {
          for (std::size_t i = 0; i < sums.size(); ++i)
            values[micro * sums.size() + i] = setup_.layers.joined(
                sums[i](output, batch.micro[micro]), given.micro[micro], Sequences::CutIfEven);
        });
    return tensor::numbers_of(values);
  } catch (...) {
    keep(std::current_exception(), error);
  }
  return std::vector<double>(values.size(), 0);
}

// Keeps the first error of a forward pass. Ranks that share a layer cannot go on without this rank,
// so it is then thrown at once.
void Evaluator::keep(const std::exception_ptr& thrown, std::exception_ptr& error) {
  if (!error) error = thrown;
  if (setup_.grid.layer == nullptr) return;
  parts_.train(true);
  give_up_(thrown);
  std::rethrow_exception(thrown);
}

// Ends forward passes that all ranks took part in. If a rank has an error, it throws that, and the
// others throw StepRefused naming it. Returns the agreed stop signal.
int Evaluator::conclude(std::vector<Work> works, const std::exception_ptr& error,
                        const std::string& operation, int stop_signal) {
  parts_.train(true);
  LocalVote local_vote{.stop_signal = stop_signal};
  if (error) local_vote.refuse(describe(error));
  works.push_back(sync_.finish());
  works.push_back(runner_.sent());
  const Vote vote(*setup_.env.world, local_vote);
  works.push_back(vote.work());
  Work::all(works).wait();
  const Verdict verdict = vote.result();
  runner_.settle(verdict.ok);
  if (error) std::rethrow_exception(error);
  if (verdict.ok) return verdict.stop_signal;
  throw StepRefused(static_cast<ExitCode>(verdict.exit_code),
                    "rank " + std::to_string(verdict.refusing_rank) + " failed in the " +
                        operation + ": " + verdict.reason,
                    {.rank = setup_.env.rank(),
                     .host = setup_.env.host,
                     .operation = operation,
                     .peer = verdict.refusing_rank,
                     .advice = "The weights are as they were; look at that rank's data and loss."});
}

models::Value Evaluator::infer(const MicroBatch& whole, bool alone) {
  if (!alone)
    require_agreement(*setup_.env.world, places_, given_micro_batch(whole), "inference",
                      setup_.env.host);
  const c10::AutoGradMode no_grad(false);
  const auto scope = setup_.layers.use();
  parts_.train(false);
  const std::uint32_t one = 1;
  sync_.begin(0, runner_.uses(std::span(&one, 1), false));
  std::exception_ptr error;
  models::Value value;
  try {
    const MicroBatch micro = on_device(setup_.layers.cut(whole, Sequences::Whole), device());
    runner_.forward_only(std::span(&micro, 1), 1,
                         [&](std::size_t, const models::Value& last) { value = last; });
  } catch (...) {
    keep(std::current_exception(), error);
  }
  if (alone) {
    parts_.train(true);
    sync_.finish().wait();
    if (error) std::rethrow_exception(error);
    return value;
  }
  conclude({}, error, "inference");
  return setup_.layers.joined(runner_.tell_all(std::move(value)));
}

}  // namespace trireme::inline v0::parallel
