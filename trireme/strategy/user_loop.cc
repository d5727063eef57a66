#include "trireme/strategy/user_loop.h"

#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/group_of_all.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {
namespace {

[[noreturn]] void refuse_loop(const StrategyContext& env, const char* operation, const char* what,
                              const char* advice) {
  throw ConfigError(
      what, {.rank = env.rank(), .host = env.host, .operation = operation, .advice = advice});
}

}  // namespace

std::shared_ptr<comm::Communicator> make_loop_group(const InputReader& reader,
                                                    const StrategyContext& env,
                                                    const std::string& sync) {
  if (!reader.has_others()) return nullptr;
  if (is_served(sync))
    refuse_loop(env, "DataParallel", "a second DataParallel cannot use parameter servers",
                "They keep the weights of one: train one module that holds both, or give this one "
                "another sync.");
  return comm::group_of_all(*env.world, "DataParallel " + std::to_string(reader.number()));
}

std::uint64_t agreed_seed(comm::Communicator& world, std::uint64_t own) {
  std::vector<std::int64_t> value{static_cast<std::int64_t>(own)};
  world.broadcast(Buffer::of(std::span(value)), 0, {.label = "seed"}).wait();
  return static_cast<std::uint64_t>(value[0]);
}

void refuse_step(const InputReader& reader, const StrategyContext& env,
                 const kernel::Assignment& shares) {
  const auto next = reader.peek();
  if (!next || !next->has_data)
    refuse_loop(env, "step", "step() was called, but the Sampler has given no micro-batch for it",
                "Call step() once for each batch of the Sampler's loader; without a Sampler, "
                "shares are equal.");
  if (env.input->assignment() != shares)
    refuse_loop(env, "step", "the DataParallels of one loop have different shares of a batch",
                "Give them the same sync and the same shares.");
  refuse_loop(
      env, "step",
      "other DataParallels of this loop made step() for micro-batches that this one left out",
      "Each may leave out whole batches, but not a part of one.");
}

void refuse_missing_steps(const StrategyContext& env) {
  refuse_loop(env, "backward", "backward() ran three times, and step() of DataParallel never",
              "Call parallel.step() after each backward(): it replaces step() and zero_grad() of "
              "the optimizer, which has no gradients.");
}

}  // namespace trireme::inline v0::parallel
