#include "trireme/sync/strategy_context.h"

#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/job/job_servers.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/processor.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::inline v0 {
namespace parallel {

namespace {

std::string other_role_of(const Job& job) {
  const rendezvous::Roles roles = job.roles();
  if (job.role() == Role::Server || job.role() == Role::Evaluator)
    return roles.name_of(roles.process_of(job.role(), job.rank()));
  return {};
}

}  // namespace

StrategyContext context_of(Job& job) {
  return {
      .world = &job.world(),
      .host = job.host_name(),
      .stop_signal = [&job] { return job.stop_signal(); },
      .note_stop = [&job](int signal) { job.changes().note_agreed_stop(signal); },
      .input = {std::shared_ptr<void>(), &job.input()},
      .set_step = [&job, attached = job.input().attach()](long step) { job.set_step(step); },
      .assign = [&job](const kernel::Assignment& assignment) { job.input().assign(assignment); },
      .reproducible = job.options().reproducible,
      .processor = tensor::describe_processor() + "; " + tensor::describe(tensor::kernel_table()),
      .local_size = job.num_hosts() * job.local_size() == job.size() ? job.local_size() : 0,
      .servers = {.count = job.roles().servers,
                  .other_role = other_role_of(job),
                  .dial = [&job](int shard) { return job.servers().dial_shard(shard); },
                  .term = [&job](int shard) { return job.servers().shard_term(shard); },
                  .patience = job.options().timeout,
                  .train_alone = [&job](int needed) { job.servers().train_alone(needed); },
                  .worker = job.rank(),
                  .workers = job.size(),
                  .on_its_own = job.joined_later(),
                  .epoch = job.changes().epoch().number,
                  .elastic = job.changes().elastic(),
                  .broken = [&servers = job.servers(),
                             &changes = job.changes()](bool commits) -> std::exception_ptr {
                    if (auto failure = servers.failure()) return failure;
                    return !commits && changes.broken() ? changes.reason() : nullptr;
                  }},
      .trace = job.options().trace};
}

}  // namespace parallel

// In this file, so that programs without a Job link without it.
Strategy::Strategy(Job& job, const models::Blocks& model, StrategyOptions options,
                   const OptimizerOptions& optimizer)
    : Strategy(parallel::context_of(job), model, std::move(options), optimizer) {}
DataParallel::DataParallel(Job& job, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                           DataParallelOptions options)
    : DataParallel(parallel::context_of(job), module, optimizer, std::move(options)) {}

}  // namespace trireme::inline v0
