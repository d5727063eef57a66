#include "trireme/placement/stage.h"

#include <algorithm>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/layers/tensor/regions.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::parallel {
namespace {

// The device that a block computes on.
at::Device device_of_values(std::span<const models::Value> values) {
  for (const models::Value& value : values)
    for (const at::Tensor& tensor : value)
      if (tensor.defined() && !tensor.is_cpu()) return tensor.device();
  return at::kCPU;
}

// A later stage would take a rank's columns for all of them, and the loss would be wrong.
void refuse_cut_logits(const std::string& name, const models::Value& value) {
  for (const at::Tensor& tensor : value)
    if (tensor.defined() && comes_from_cut_logits(tensor))
      throw ConfigError("\"" + name +
                            "\" comes from a rank's columns of a vocabulary's logits and has as "
                            "many columns, and a later stage of the pipeline reads it",
                        {.operation = "model",
                         .advice = "Compute in the head's block what follows the logits, or use "
                                   "parallel.tensor = 1 or parallel.pipeline = 1."});
}

}  // namespace

std::vector<std::string> values_across(const models::Blocks& model, std::size_t cut) {
  const std::vector<models::BlockSpec>& specs = model.specs();
  std::set<std::string> read;  // from the cut on, before they are overwritten
  for (std::size_t i = specs.size(); i-- > cut;) {
    read.erase(specs[i].writes);
    read.insert(specs[i].reads.begin(), specs[i].reads.end());
  }
  std::vector<std::string> names;
  for (std::size_t i = cut; i-- > 0;)
    if (read.erase(specs[i].writes) > 0) names.push_back(specs[i].writes);  // its last write
  std::reverse(names.begin(), names.end());
  return names;
}

Stage::Stage(const models::Blocks& model, std::uint64_t seed,
             const std::function<void(const Member&)>& built, BlockRange range)
    : first_(range.first), blocks_(model.specs().size()), seed_(seed) {
  const std::vector<models::BlockSpec>& specs = model.specs();
  const std::size_t end = std::min(range.end, specs.size());
  if (range.first >= end)
    throw ConfigError(specs.empty()
                          ? "the model has no blocks"
                          : "a stage has no blocks: " + std::to_string(range.first) + " to " +
                                std::to_string(end) + " of " + std::to_string(specs.size()),
                      {.operation = "model", .advice = "Add blocks, or use fewer stages."});
  for (std::size_t i = range.first; i < end; ++i) {
    const models::BlockSpec& spec = specs[i];
    tensor::seed_default_generator(seed, spec.name);
    members_.push_back({spec.name, spec.make(), spec.reads, spec.writes});
    if (built) built(members_.back());
  }
  takes_ = values_across(model, range.first);
  gives_ = end == specs.size() ? std::vector{specs.back().writes} : values_across(model, end);
  find_last_uses();
}

void Stage::find_last_uses() {
  std::map<std::string, std::size_t> last_use;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    for (const std::string& value : members_[i].reads) last_use[value] = i;
    last_use[members_[i].writes] = i;
  }
  for (const std::string& value : gives_) last_use.erase(value);
  dead_after_.resize(members_.size());
  for (const auto& [value, index] : last_use) dead_after_[index].push_back(value);
}

models::Value Stage::forward(const MicroBatch& micro, std::int64_t step, const Enter& enter) {
  return std::move(forward(Values(), micro, step, enter).at(gives_.back()));
}

Values Stage::forward(Values values, const MicroBatch& micro, std::int64_t step,
                      const Enter& enter) {
  if (activations_) activations_->begin_pass();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    std::vector<models::Value> inputs;
    for (const std::string& name : member.reads) {
      const auto found = values.find(name);
      inputs.push_back(found != values.end() ? found->second : models::Value{micro.field(name)});
    }
    const tensor::StreamKey key{.seed = seed_,
                                .step = step,
                                .sample = static_cast<std::int64_t>(micro.index),
                                .layer = static_cast<std::uint32_t>(first_ + i)};
    const Leave leave = enter ? enter(i) : Leave{};
    std::optional<memory::ActivationStore::Block> saved;
    if (activations_ && ends_list(i)) activations_->turn();
    if (activations_ && !ends_list(i)) saved.emplace(*activations_);
    models::Value output = run(i, inputs, key);
    saved.reset();
    inputs.clear();
    if (leave) leave(output);
    values[member.writes] = std::move(output);
    for (const std::string& name : dead_after_[i]) values.erase(name);
  }
  if (!ends_list(members_.size() - 1))
    for (const std::string& name : gives_) refuse_cut_logits(name, values.at(name));
  return values;
}

models::Value Stage::run(std::size_t index, const std::vector<models::Value>& inputs,
                         const tensor::StreamKey& key) {
  const memory::Recompute kind = recompute_.of(first_ + index, blocks_);
  const auto forward = [this, index, key, kind](std::span<const models::Value> values) {
    const tensor::StreamScope streams(key);
    const tensor::ProbabilitiesScope probabilities(kind != memory::Recompute::Selective);
    const at::Device device = device_of_values(values);
    if (seeds_generator_) tensor::seed_default_generator(key, device);
    const bool watched = seeds_generator_ && drawing_block_.empty();
    const std::uint64_t position = watched ? tensor::default_generator_position(device) : 0;
    models::Value output = members_[index].block->forward(values);
    if (watched && position != tensor::default_generator_position(device))
      drawing_block_ = members_[index].name;
    return output;
  };
  if (kind != memory::Recompute::Full) return forward(inputs);
  std::vector<std::size_t> sizes;
  std::vector<at::Tensor> flat;
  for (const models::Value& input : inputs) {
    sizes.push_back(input.size());
    flat.insert(flat.end(), input.begin(), input.end());
  }
  const auto unflatten = [forward, sizes](const std::vector<at::Tensor>& tensors) {
    std::vector<models::Value> values;
    auto next = tensors.begin();
    for (const std::size_t size : sizes) {
      const auto begin = next;
      next += static_cast<std::ptrdiff_t>(size);
      values.emplace_back(begin, next);
    }
    return forward(values);
  };
  return memory::recompute(unflatten, flat, memory::Draws::OwnSeed);
}

void Stage::train(bool on) {
  for (const Member& member : members_) member.block->train(on);
}

}  // namespace trireme::inline v0::parallel
