// The parts of input/ that use a Job: batches() and the Sampler that DataParallel reads.
#include "trireme/base/error.h"
#include "trireme/input/batches.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/input/sampler_state.h"
#include "trireme/job/input_plan.h"
#include "trireme/job/job.h"

namespace trireme::inline v0 {
namespace {

void publish(Job& job, std::shared_ptr<input::SamplerState> state) {
  const auto other = job.input().plan();
  if (other != nullptr && other.use_count() > 2) {  // more than the Job's and `other` itself
    throw ConfigError("a second Sampler would take over this Job's plan",
                      {.operation = "input",
                       .advice = "Give the one that is not for training {.follow = false}."});
  }
  job.input().set_plan(std::move(state));
}

}  // namespace

Sampler::Sampler(Job& job, std::int64_t n, const SamplerOptions& options)
    : state_(std::make_shared<input::SamplerState>(
          n, options, job.rank(), job.size(),
          options.follow ? [&job] { job.input().begin(); } : std::function<void()>(),
          options.follow ? [&job] { return job.input().assignment(); }
                         : std::function<kernel::Assignment()>())) {
  if (options.follow) publish(job, state_);
}

std::vector<Batch> fixed_batches(const Job& job, const Dataset& data, std::int64_t batch,
                                 std::int64_t micro, std::int64_t count) {
  return input::fixed_share(data, batch, micro, count, job.input().assignment(), job.rank());
}

Batches batches(const Job& job, std::shared_ptr<const Dataset> data,
                const BatchesOptions& options) {
  // Ranks of one pipeline share their micro-batches.
  return Batches(std::move(data), options, job.rank(), job.input().assignment().size(),
                 job.waiter(), [&job] { return job.input().assignment(); });
}

}  // namespace trireme::inline v0
