#include "trireme/parallel/pipeline/stage.h"

#include <map>

#include "trireme/base/error.h"
#include "trireme/tensor/functions.h"
#include "trireme/tensor/random.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

Stage::Stage(const models::Blocks& model, std::uint64_t seed,
             const std::function<void(const Member&)>& built)
    : seed_(seed) {
  if (model.specs().empty())
    throw ConfigError("the model has no blocks", {.operation = "model", .advice = "Add blocks."});
  std::map<std::string, std::size_t> last_use;
  for (const models::BlockSpec& spec : model.specs()) {
    const std::size_t index = members_.size();
    Member member{.name = spec.name, .block = nullptr, .reads = spec.reads, .writes = spec.writes};
    if (member.reads.empty())
      member.reads.push_back(index == 0 ? "tokens" : members_.back().writes);
    if (member.writes.empty()) member.writes = spec.name;
    for (const Member& other : members_)
      if (other.name == spec.name)
        throw ConfigError("two blocks are named \"" + spec.name + "\"",
                          {.operation = "model", .advice = "Give every block its own name."});
    for (const std::string& value : member.reads) last_use[value] = index;
    last_use[member.writes] = index;
    tensor::seed_default_generator(seed, spec.name);
    member.block = spec.make();
    members_.push_back(std::move(member));
    if (built) built(members_.back());
  }
  last_use.erase(members_.back().writes);
  dead_after_.resize(members_.size());
  for (const auto& [value, index] : last_use) dead_after_[index].push_back(value);
}

models::Value Stage::forward(const MicroBatch& micro, std::int64_t step, const Enter& enter) {
  std::map<std::string, models::Value> values;
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
                                .layer = static_cast<std::uint32_t>(i)};
    const Leave leave = enter ? enter(i) : Leave{};
    models::Value output = run(i, inputs, key);
    inputs.clear();
    if (leave) leave(output);
    values[member.writes] = std::move(output);
    for (const std::string& name : dead_after_[i]) values.erase(name);
  }
  return std::move(values.at(members_.back().writes));
}

models::Value Stage::run(std::size_t index, const std::vector<models::Value>& inputs,
                         const tensor::StreamKey& key) {
  const auto forward = [this, index, key](std::span<const models::Value> values) {
    const tensor::StreamScope streams(key);
    const tensor::ProbabilitiesScope probabilities(!recompute_.attention);
    if (seeds_generator_) tensor::seed_default_generator(key);
    const std::uint64_t position = seeds_generator_ ? tensor::default_generator_position() : 0;
    models::Value output = members_[index].block->forward(values);
    if (seeds_generator_ && drawing_block_.empty() &&
        position != tensor::default_generator_position())
      drawing_block_ = members_[index].name;
    return output;
  };
  if (!recompute_.runs_again(index, members_.size())) return forward(inputs);
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

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
