#include "trireme/sync/model_parts.h"

#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/texts.h"
#include "trireme/layers/tensor/part.h"
#include "trireme/sync/gathers/gather_parameter.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

// The block of a parameter: the one with the longest name that is a prefix of the parameter's.
std::size_t block_of(const models::Blocks& model, const std::string& parameter) {
  std::size_t best = model.specs().size(), length = 0;
  for (std::size_t i = 0; i < model.specs().size(); ++i) {
    const std::string& name = model.specs()[i].name;
    if (name.size() < length || !parameter.starts_with(name + ".")) continue;
    best = i;
    length = name.size();
  }
  return best;
}

nlohmann::json row(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
                   bool adopted, const models::Part& part, bool decay, at::ScalarType compute) {
  return {name,
          static_cast<int>(dtype),
          shape,
          adopted,
          {part.dim, part.index, part.of, part.sections, part.whole, part.place, part.holder,
           part.places},
          decay,
          static_cast<int>(compute)};
}

models::Part part_of_row(const nlohmann::json& row) {
  const nlohmann::json& part = row[4];
  return {.dim = part[0].get<int>(),
          .index = part[1].get<int>(),
          .of = part[2].get<int>(),
          .sections = part[3].get<int>(),
          .whole = part[4].get<std::int64_t>(),
          .place = part[5].get<int>(),
          .holder = part[6].get<int>(),
          .places = part[7].get<int>()};
}

nlohmann::json table_of(const ModelPart& part) {
  nlohmann::json parameters = nlohmann::json::array(), buffers = nlohmann::json::array();
  for (const StoredParameter& one : part.store.parameters())
    parameters.push_back(
        row(one.name, one.master, one.shape, one.adopted, one.part, one.decay, one.compute));
  for (const auto& [name, buffer] : part.store.buffers())
    buffers.push_back(row(name, tensor::dtype_of(buffer), buffer.sizes().vec(), false, {}, false,
                          buffer.scalar_type()));
  return {{"parameters", parameters}, {"buffers", buffers}};
}

// Adds a stage's rows. A tensor keeps the position at which it was first seen.
void add_rows(const nlohmann::json& rows, int stage, std::vector<ModelTensor>& into) {
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < into.size(); ++i) place.emplace(into[i].name, i);
  for (const nlohmann::json& row : rows) {
    const auto name = row[0].get<std::string>();
    const auto [at, is_new] = place.emplace(name, into.size());
    if (is_new)
      into.push_back({.name = name,
                      .dtype = static_cast<DType>(row[1].get<int>()),
                      .compute = static_cast<at::ScalarType>(row[6].get<int>()),
                      .shape = row[2].get<std::vector<std::int64_t>>(),
                      .part = part_of_row(row),
                      .decay = row[5].get<bool>(),
                      .owner = -1});
    ModelTensor* found = &into[at->second];
    const auto refuse = [&](const std::string& why, const std::string& advice) {
      throw ConfigError(name + " is tied in stage " + std::to_string(stage) + why,
                        {.operation = "model", .advice = advice});
    };
    if (found->shape != row[2].get<std::vector<std::int64_t>>())
      refuse(" in another shape", "Tie equal shapes.");
    if (static_cast<int>(found->compute) != row[6].get<int>())
      refuse(" in another type", "Tie equal types.");
    if (found->part != part_of_row(row)) refuse(", which is cut otherwise", "Cut both alike.");
    if (found->decay != row[5].get<bool>())
      refuse(", and one of its uses has weight decay", "Give all the same NamedTensor::decay.");
    found->stages.push_back(stage);
    if (!row[3].get<bool>()) found->owner = stage;
  }
}

}  // namespace

std::int64_t ModelTensor::count() const noexcept { return c10::multiply_integers(shape); }
std::int64_t ModelTensor::whole_count() const {
  return c10::multiply_integers(shape_of_whole(shape, part));
}

ModelPart::ModelPart(const models::Blocks& model, std::uint64_t seed, BlockRange range,
                     StoreOptions options)
    : store(model.ties(), std::move(options)),
      blocks(
          model, seed, [this](const Stage::Member& member) { store.add_block(member); }, range),
      statistics((store.complete(), blocks)) {}

ModelParts::ModelParts(const models::Blocks& model, const PipelinePlan& plan, Options options) {
  const int rank = options.pipeline != nullptr ? options.pipeline->rank() : 0;
  for (std::size_t stage = 1; stage + 1 < options.cut.size(); ++stage)
    values_after_.push_back(values_across(model, options.cut[stage]));
  const std::vector<int> stages = plan.stages_of(rank);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto stage = static_cast<std::size_t>(stages[i]);
    const BlockRange range{options.cut[stage], options.cut[stage + 1]};
    StoreOptions store = options.store(*options.data[i]);
    if (options.pipeline != nullptr)
      store.here = [model, range](const std::string& parameter) {
        const std::size_t block = block_of(model, parameter);
        return block >= range.first && block < range.end;
      };
    parts_.push_back(std::make_unique<ModelPart>(model, options.seed, range, std::move(store)));
    parts_.back()->stage = stages[i];
    parts_.back()->data = options.data[i];
  }
  if (options.pipeline == nullptr) {
    const nlohmann::json own = table_of(whole());
    add_rows(own["parameters"], 0, parameters_);
    add_rows(own["buffers"], 0, buffers_);
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) whole().number.push_back(i);
    return;
  }
  learn_all(plan, *options.pipeline);
  share_tied(plan, *options.pipeline);
}

void ModelParts::learn_all(const PipelinePlan& plan, comm::Communicator& pipeline) {
  nlohmann::json mine = nlohmann::json::array();
  for (const auto& part : parts_) mine.push_back(table_of(*part));
  std::vector<nlohmann::json> of_stage(static_cast<std::size_t>(plan.stages()));
  const std::vector<std::string> texts =
      comm::exchange_texts(mine.dump(), pipeline, "pipeline stages");
  for (int rank = 0; rank < pipeline.size(); ++rank) {
    const nlohmann::json tables = nlohmann::json::parse(texts[static_cast<std::size_t>(rank)]);
    const std::vector<int> stages = plan.stages_of(rank);
    for (std::size_t i = 0; i < stages.size(); ++i)
      of_stage[static_cast<std::size_t>(stages[i])] = tables.at(i);
  }
  for (int stage = 0; stage < plan.stages(); ++stage) {
    add_rows(of_stage[static_cast<std::size_t>(stage)]["parameters"], stage, parameters_);
    add_rows(of_stage[static_cast<std::size_t>(stage)]["buffers"], stage, buffers_);
  }
  std::map<std::string, std::uint32_t> number;
  for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].owner < 0)
      throw ConfigError(
          "tie: no parameter " + parameters_[i].name,
          {.operation = "model", .advice = "Name an existing parameter as the owner."});
    number.emplace(parameters_[i].name, i);
  }
  for (const auto& part : parts_)
    for (const StoredParameter& stored : part->store.parameters())
      part->number.push_back(number.at(stored.name));
}

// Copies the owner's initial values of each tied parameter to the other stages that hold it.
void ModelParts::share_tied(const PipelinePlan& plan, comm::Communicator& pipeline) {
  const c10::AutoGradMode no_grad(false);
  const auto rank_of = [&](int stage) {
    return plan.rank_of_stage()[static_cast<std::size_t>(stage)];
  };
  const auto stored = [](const ModelPart& part, std::uint32_t parameter) {
    const auto at = std::find(part.number.begin(), part.number.end(), parameter);
    TRIREME_CHECK(at != part.number.end());
    return static_cast<std::uint32_t>(at - part.number.begin());
  };
  for (std::uint32_t index = 0; index < parameters_.size(); ++index) {
    const ModelTensor& tied = parameters_[index];
    if (tied.stages.size() == 1) continue;
    const int root = rank_of(tied.owner);
    const comm::OpOptions options{.label = tied.name};
    at::Tensor values;  // the owner's
    for (const auto& part : parts_)
      if (part->stage == tied.owner)
        values = whole_weights(*part->data, part->store, stored(*part, index));
    for (const int stage : tied.stages) {
      if (stage == tied.owner) continue;
      if (pipeline.rank() == root && rank_of(stage) != root)
        pipeline.send(tensor::bytes_of(values), rank_of(stage), 0, options).wait();
      for (const auto& part : parts_) {
        if (part->stage != stage) continue;
        if (pipeline.rank() != root) {
          const auto type = part->store.parameters()[stored(*part, index)].compute;
          values = at::empty(
              tied.shape, at::TensorOptions(tensor::at_device(part->store.device())).dtype(type));
          pipeline.recv(tensor::bytes_of(values), root, 0, options).wait();
        }
        keep_weights(part->store, stored(*part, index), values);
        for (const NamedShard& shard : part->store.masters())
          if (shard.name == tied.name)
            shard.local.flatten().copy_(
                values.flatten().narrow(0, shard.begin, shard.end - shard.begin));
      }
    }
  }
}

std::vector<optim::ParameterInfo> ModelParts::infos() const {
  std::vector<optim::ParameterInfo> infos;
  for (const ModelTensor& one : parameters_) infos.push_back({one.name, one.shape});
  return infos;
}

std::int64_t ModelParts::num_elements() const {
  std::int64_t sum = 0;
  for (const ModelTensor& one : parameters_) sum += one.whole_count();
  return sum;
}

std::vector<NamedShard> ModelParts::masters() const {
  if (parts_.size() == 1) return whole().store.masters();
  std::vector<NamedShard> shards;
  std::set<std::string> seen;
  for (const auto& part : parts_)
    for (NamedShard& shard : part->store.masters())
      if (seen.insert(shard.name).second) shards.push_back(std::move(shard));
  return shards;
}

NamedTensors ModelParts::buffers() const {
  NamedTensors all;
  for (const auto& part : parts_)
    all.insert(all.end(), part->store.buffers().begin(), part->store.buffers().end());
  return all;
}

bool ModelParts::is_frozen(const std::string& buffer) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const auto& part) { return part->store.is_frozen(buffer); });
}

void ModelParts::refresh() {
  for (const auto& part : parts_) part->store.refresh();
}
std::int64_t ModelParts::offloaded_activation_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& part : parts_)
    if (const auto& store = part->blocks.activations()) bytes += store->bytes();
  return bytes;
}
void ModelParts::train(bool on) {
  for (const auto& part : parts_) part->blocks.train(on);
}
void ModelParts::reload_statistics() {
  for (const auto& part : parts_) part->statistics.reload();
}
void ModelParts::drop_statistics() {
  for (const auto& part : parts_) part->statistics.drop();
}

}  // namespace trireme::inline v0::parallel
