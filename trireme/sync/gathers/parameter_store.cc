#include "trireme/sync/gathers/parameter_store.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/refuse.h"
#include "trireme/sync/buckets/autograd_hooks.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/copy_streams.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

bool fits(at::ScalarType type, const std::string& precision) {
  if (precision == "fp64") return type == at::kDouble;
  if (precision == "fp32") return type == at::kFloat;
  if (precision == "own") return c10::isFloatingType(type);
  return type == at::kFloat || type == (precision == "fp16" ? at::kHalf : at::kBFloat16);
}

// "head.weight" -> "embed.weight", followed to the end.
std::string owner_of(std::string name, const std::map<std::string, std::string>& ties) {
  for (std::size_t hops = 0; ties.contains(name); ++hops) {
    if (hops > ties.size())
      refuse("model", "the tie of " + name + " is a circle", "Tie to one owner.");
    name = ties.at(name);
  }
  return name;
}

bool is_here(const StoreOptions& options, const std::string& parameter) {
  return !options.here || options.here(parameter);
}

at::ScalarType master_type(at::ScalarType compute) {
  return compute == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

ParameterStore::ParameterStore(const std::vector<models::Tie>& ties, StoreOptions options)
    : UnitMemory(options.owners, options.owner, options.shards_weights, options.device,
                 options.cold_on_host),
      options_(std::move(options)) {
  for (const models::Tie& tie : ties) ties_[tie.alias] = tie.owner;
}

std::uint32_t ParameterStore::find_or_add(const std::string& owner, const std::string& name,
                                          const models::NamedTensor& own) {
  const auto [at, added] = index_.emplace(owner, static_cast<std::uint32_t>(parameters_.size()));
  if (added) {
    const at::ScalarType compute = own.tensor.scalar_type();
    parameters_.push_back({.name = owner,
                           .shape = own.tensor.sizes().vec(),
                           .decay = own.decay,
                           .part = own.part,
                           .count = own.tensor.numel(),
                           .compute = compute,
                           .master = tensor::dtype_of(master_type(compute))});
  } else if (parameters_[at->second].shape != own.tensor.sizes().vec()) {
    refuse("model", name + " is tied to " + owner + " of another shape", "Tie equal shapes.");
  } else if (parameters_[at->second].compute != own.tensor.scalar_type()) {
    refuse("model", name + " is tied to " + owner + " of another type", "Tie equal types.");
  } else if (parameters_[at->second].part != own.part) {
    refuse("model", name + " is tied to " + owner + ", which is cut otherwise", "Cut both alike.");
  } else if (parameters_[at->second].decay != own.decay) {
    refuse("model", name + " is tied to " + owner + ", and one of them has weight decay",
           "Give both the same NamedTensor::decay.");
  }
  return at->second;
}

void ParameterStore::add_block(const Stage::Member& member) {
  const c10::AutoGradMode no_grad(false);
  const std::size_t block = uses_.size(), first_leaf = leaves_.size();
  const std::size_t first_buffer = buffers_.size();
  uses_.emplace_back();
  parameter_of_.emplace_back();
  std::vector<std::pair<std::uint32_t, at::Tensor>> owned;
  for (const models::NamedTensor& own : member.block->parameters()) {
    const std::string name = member.name.empty() ? own.name : member.name + "." + own.name;
    if (!fits(own.tensor.scalar_type(), options_.precision))
      refuse("model",
             "parameter " + name + " is " + std::string(c10::toString(own.tensor.scalar_type())) +
                 ", the strategy's precision is " + options_.precision,
             "Build the model with the same precision.");
    if (has_gradient_hook(own.tensor))
      refuse("model", "parameter " + name + " is trained by another Strategy or DataParallel",
             "Destroy that one first, or make a new module in the block's factory.");
    memory_.add_leaf(name, own.tensor);
    const std::string owner = owner_of(name, ties_);
    const bool is_new = !index_.contains(owner);
    const std::uint32_t index = find_or_add(owner, name, own);
    if (is_new) parameters_[index].adopted = !is_here(options_, owner);
    // The owner's values are taken, wherever it is in the list.
    if (name == owner || (is_new && parameters_[index].adopted))
      owned.emplace_back(index, own.tensor);
    use_of_leaf_.push_back(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(uses_[block].size())});
    uses_[block].push_back({name, own.tensor.numel(), parameters_[index].master,
                            own.tensor.dim() > 1 ? own.tensor.size(0) : 1});
    parameter_of_[block].push_back(index);
    parameter_of_leaf_.push_back(index);
    leaves_.push_back(own.tensor);
  }
  for (models::NamedTensor& buffer : member.block->buffers()) {
    const at::Device here = tensor::at_device(options_.device);
    if (buffer.tensor.device() != here) buffer.tensor.set_data(buffer.tensor.to(here));
    buffers_.emplace_back(member.name + "." + buffer.name, buffer.tensor);
    if (buffer.frozen) frozen_.insert(buffers_.back().first);
    memory_.add(buffers_.back().first, buffer.tensor, false);
  }
  place(block, owned);
  // complete() points the leaves whose owner comes later in the list.
  for (std::size_t leaf = first_leaf; leaf < leaves_.size(); ++leaf)
    if (const std::uint32_t index = parameter_of_leaf_[leaf]; parameters_[index].unit >= 0)
      leaves_[leaf].set_data(weights(index));
  if (!shards_weights()) return;
  std::vector<std::uint32_t> indices;
  for (const auto& [index, leaf] : owned) indices.push_back(index);
  replicate(indices, first_buffer);
  keep_own(static_cast<std::uint32_t>(block));
}

// The block's own parameters become unit number `block`.
void ParameterStore::place(std::size_t block,
                           const std::vector<std::pair<std::uint32_t, at::Tensor>>& owned) {
  std::vector<Unit::Member> members;
  for (const auto& [index, leaf] : owned) {
    StoredParameter& parameter = parameters_[index];
    if (parameter.unit >= 0)
      refuse("model", parameter.name + " appears twice", "Give it one name.");
    parameter.unit = static_cast<int>(block);
    parameter.member = members.size();
    members.push_back({.parameter = index,
                       .count = parameter.count,
                       .width = c10::elementSize(parameter.compute)});
  }
  TRIREME_CHECK(add_unit(std::move(members)) == block);
  for (const auto& [index, leaf] : owned) weights(index).copy_(leaf);
}

at::Tensor ParameterStore::weights(std::uint32_t index) const {
  const StoredParameter& parameter = parameters_[index];
  return whole_member(static_cast<std::uint32_t>(parameter.unit), parameter.member)
      .view(parameter.compute)
      .view(parameter.shape);
}

void ParameterStore::replicate(std::span<const std::uint32_t> parameters,
                               std::size_t first_buffer) const {
  if (!options_.replicate) return;
  NamedTensors tensors;
  for (const std::uint32_t index : parameters)
    tensors.emplace_back(parameters_[index].name, weights(index));
  tensors.insert(tensors.end(), buffers_.begin() + static_cast<std::ptrdiff_t>(first_buffer),
                 buffers_.end());
  options_.replicate(tensors);
}

void ParameterStore::complete() {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [alias, owner] : ties_) {
    if (!is_here(options_, alias)) continue;
    const auto found = index_.find(owner_of(alias, ties_));
    if (found == index_.end() || parameters_[found->second].unit < 0)
      refuse("model", "tie: no parameter " + owner, "Name an existing parameter as the owner.");
  }
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf)
    if (const std::uint32_t index = parameter_of_leaf_[leaf]; parameters_[index].unit >= 0)
      leaves_[leaf].set_data(weights(index));
  for (std::size_t block = 0; block < uses_.size(); ++block) {
    std::vector<std::uint32_t>& units = units_of_block_.emplace_back();
    if (!ownership().units()[block].members.empty())
      units.push_back(static_cast<std::uint32_t>(block));
    for (const std::uint32_t index : parameter_of_[block]) {
      const auto unit = static_cast<std::uint32_t>(parameters_[index].unit);
      if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
    }
  }
  if (!shards_weights()) {
    std::vector<std::uint32_t> all(parameters_.size());
    std::iota(all.begin(), all.end(), 0u);
    replicate(all, 0);
  }
  make_masters();
}

void ParameterStore::make_masters() {
  for (const Piece& piece : ownership().pieces()[static_cast<std::size_t>(owner())]) {
    const StoredParameter& parameter = parameters_[piece.parameter];
    const at::Tensor compute =
        own_piece(static_cast<std::uint32_t>(parameter.unit), parameter.member, piece)
            .view(parameter.compute);
    LocalShard part{.piece = piece};
    const at::ScalarType type = master_type(parameter.compute);
    if (options_.precision == "own" || parameter.compute == type) {
      part.master = compute;
    } else {
      part.master = options_.cold_on_host
                        ? pinned_memory().take(compute.numel(), type).copy_(compute)
                        : compute.to(type);
      part.compute = compute;
    }
    parts_.push_back(std::move(part));
  }
  std::stable_sort(parts_.begin(), parts_.end(), [](const LocalShard& a, const LocalShard& b) {
    return a.piece.parameter < b.piece.parameter;
  });
}

std::vector<optim::OwnedSlice> ParameterStore::slices() const {
  std::vector<optim::OwnedSlice> slices;
  const auto on_host = [&](const at::Tensor& tensor) {
    return options_.cold_on_host && tensor.defined() && tensor.is_cpu() ? tensor : at::Tensor();
  };
  for (const LocalShard& part : parts_) {
    const StoredParameter& parameter = parameters_[part.piece.parameter];
    slices.push_back({.parameter = part.piece.parameter,
                      .name = parameter.name,
                      .begin = part.piece.begin,
                      .end = part.piece.end,
                      .master_dtype = parameter.master,
                      .weight = part.master.data_ptr(),
                      .compute = part.compute.defined() ? part.compute.data_ptr() : nullptr,
                      .compute_dtype = tensor::dtype_of(parameter.compute),
                      .decay = parameter.decay,
                      .device = options_.device,
                      .host_weight = on_host(part.master),
                      .host_compute = on_host(part.compute)});
  }
  return slices;
}

ParameterStore::OwnWeights ParameterStore::own_weights(std::uint32_t parameter) const {
  for (const LocalShard& part : parts_)
    if (part.piece.parameter == parameter)
      return {part.piece.begin, part.compute.defined() ? part.compute : part.master};
  return {0, at::empty({0}, at::TensorOptions(tensor::at_device(own_device()))
                                .dtype(parameters_[parameter].compute))};
}

std::vector<at::Tensor> ParameterStore::cold_memory() const {
  std::vector<at::Tensor> memory = own_memory();
  for (const LocalShard& part : parts_)
    if (part.compute.defined()) memory.push_back(part.master);
  return memory;
}

void ParameterStore::refresh() {
  const c10::AutoGradMode no_grad(false);
  for (const LocalShard& part : parts_)
    if (part.compute.defined()) part.compute.copy_(part.master);
}

bool ParameterStore::masters_are_whole() const noexcept {
  if (options_.owners == 1) return true;
  if (shards_weights()) return false;
  return std::all_of(parameters_.begin(), parameters_.end(), [](const StoredParameter& parameter) {
    return parameter.compute == master_type(parameter.compute);
  });
}

std::vector<NamedShard> ParameterStore::masters() const {
  std::vector<NamedShard> shards;
  const auto add = [&](const Piece& piece, const at::Tensor& values) {
    const StoredParameter& parameter = parameters_[piece.parameter];
    const bool whole = piece.size() == parameter.count;
    shards.push_back({.name = parameter.name,
                      .dtype = parameter.master,
                      .shape = parameter.shape,
                      .begin = piece.begin,
                      .end = piece.end,
                      .local = whole ? values.view(parameter.shape) : values});
  };
  if (options_.owners > 1 && masters_are_whole()) {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      add({i, 0, parameters_[i].count}, weights(i));
  } else {
    for (const LocalShard& part : parts_) add(part.piece, part.master);
  }
  return shards;
}

std::vector<optim::ParameterInfo> ParameterStore::infos() const {
  std::vector<optim::ParameterInfo> infos;
  for (const StoredParameter& parameter : parameters_)
    infos.push_back({parameter.name, parameter.shape});
  return infos;
}

std::string ParameterStore::replaced(const std::vector<Stage::Member>& members) const {
  std::size_t leaf = 0;
  for (std::size_t block = 0; block < members.size(); ++block) {
    const auto now = members[block].block->parameters();
    if (now.size() != uses_[block].size())
      return "block \"" + members[block].name + "\" has " + std::to_string(now.size()) +
             " parameters, and had " + std::to_string(uses_[block].size());
    for (std::size_t i = 0; i < now.size(); ++i, ++leaf) {
      const auto unit = static_cast<std::uint32_t>(parameters_[parameter_of_leaf_[leaf]].unit);
      if (!now[i].tensor.is_same(leaves_[leaf]))
        return "parameter " + uses_[block][i].name + " is another tensor than at the start";
      if (!lies_in(unit, now[i].tensor))
        return "parameter " + uses_[block][i].name + " has other memory than at the start";
    }
  }
  return {};
}

}  // namespace trireme::inline v0::parallel
