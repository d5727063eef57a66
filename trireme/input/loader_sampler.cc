#include "trireme/input/loader_sampler.h"

#include <torch/serialize/archive.h>

#include "trireme/base/error.h"
#include "trireme/input/sampler_state.h"

namespace trireme::inline v0 {
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
