#include "trireme/input/loader_sampler.h"

#include <torch/serialize/archive.h>

#include "trireme/base/error.h"
#include "trireme/input/sampler_state.h"
#include "trireme/job/job.h"
#include "trireme/job/job_input.h"

namespace trireme::inline v0 {
namespace {

void publish(Job& job, std::shared_ptr<input::SamplerState> state) {
  const auto other = job.input().plan();
  if (other != nullptr && other.use_count() > 2) {  // more than the Job's and `other` itself
    throw ConfigError(
        "this Job already has a Sampler for training",
        {.operation = "input",
         .advice = "Make Samplers for other data, such as evaluation, with {.follow = false}."});
  }
  job.input().set_plan(std::move(state));
}

}  // namespace

Sampler::Sampler(Job& job, std::int64_t n, const SamplerOptions& options)
    : state_(std::make_shared<input::SamplerState>(
          n, options, job.rank(), job.size(),
          options.follow ? [&job] { job.input().begin_pass(); } : std::function<void()>(),
          options.follow ? [&job] { return job.input().assignment(); }
                         : std::function<kernel::Assignment()>(),
          options.follow ? [&job] { job.input().begin_micro(); } : std::function<void()>())) {
  if (options.follow) publish(job, state_);
}

Sampler::Sampler(std::shared_ptr<input::SamplerState> state) : state_(std::move(state)) {}
Sampler::~Sampler() = default;
Sampler::Sampler(const Sampler&) = default;

void Sampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && static_cast<std::int64_t>(*new_size) != state_->size()) {
    throw ConfigError("a Sampler over " + std::to_string(state_->size()) +
                          " samples cannot become one over " + std::to_string(*new_size),
                      {.operation = "input", .advice = "Make another Sampler."});
  }
  state_->begin_pass();
}

std::optional<std::vector<std::size_t>> Sampler::next(std::size_t micro) {
  return state_->next(static_cast<std::int64_t>(micro));
}

void Sampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("position", c10::IValue(metadata()));
}

void Sampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  archive.read("position", value);
  restored(value.toStringRef());
}

std::string Sampler::metadata() const { return state_->metadata(); }
void Sampler::restored(const std::string& metadata) { state_->restored(metadata); }

}  // namespace trireme::inline v0
