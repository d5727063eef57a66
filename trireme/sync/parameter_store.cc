#include "trireme/sync/parameter_store.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

[[noreturn]] void refuse_store(const std::string& message, const std::string& advice) {
  throw ConfigError(message, {.operation = "model", .advice = advice});
}

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
      refuse_store("the tie of " + name + " is a circle", "Tie to one owner.");
    name = ties.at(name);
  }
  return name;
}

at::Tensor bytes_tensor(std::size_t bytes) {
  const at::Tensor tensor =
      at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
  TRIREME_CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64 == 0u);
  return tensor;
}

at::ScalarType master_type(at::ScalarType compute) {
  return compute == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

ParameterStore::ParameterStore(const std::vector<models::Tie>& ties, StoreOptions options)
    : options_(std::move(options)), ownership_(options_.owners) {
  for (const models::Tie& tie : ties) ties_[tie.alias] = tie.owner;
  if (options_.owners == 1) options_.shards_weights = false;  // this rank's shard is the whole
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
    refuse_store(name + " is tied to " + owner + " of another shape", "Tie equal shapes.");
  } else if (parameters_[at->second].compute != own.tensor.scalar_type()) {
    refuse_store(name + " is tied to " + owner + " of another type", "Tie equal types.");
  } else if (parameters_[at->second].part != own.part) {
    refuse_store(name + " is tied to " + owner + ", which is cut otherwise", "Cut both alike.");
  }
  return at->second;
}

// Leaves are pointed into the store, so each belongs to one use and shares its memory with no
// other.
void ParameterStore::take_memory(const std::string& name, const at::Tensor& leaf) {
  const auto [at, added] = leaf_names_.emplace(leaf.unsafeGetTensorImpl(), name);
  if (!added)
    refuse_store(name + " and " + at->second + " are one tensor under two names",
                 "Build them as two tensors: tie() makes them one weight.");
  memory_.add(name, leaf, true);
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
      refuse_store("parameter " + name + " is " +
                       std::string(c10::toString(own.tensor.scalar_type())) +
                       ", the strategy's precision is " + options_.precision,
                   "Build the model with the same precision.");
    take_memory(name, own.tensor);
    const std::string owner = owner_of(name, ties_);
    const bool is_new = !index_.contains(owner);
    const std::uint32_t index = find_or_add(owner, name, own);
    if (is_new) parameters_[index].adopted = !is_here(owner);
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
  for (const models::NamedTensor& buffer : member.block->buffers()) {
    buffers_.emplace_back(member.name + "." + buffer.name, buffer.tensor);
    memory_.add(buffers_.back().first, buffer.tensor, false);
  }
  place(block, owned);
  for (std::size_t leaf = first_leaf; leaf < leaves_.size(); ++leaf) point(leaf);
  if (!options_.shards_weights) return;
  replicate_unit(static_cast<std::uint32_t>(block), first_buffer);
  keep_local_shard(static_cast<std::uint32_t>(block));
}

// The block's own parameters become unit number `block`.
void ParameterStore::place(std::size_t block,
                           const std::vector<std::pair<std::uint32_t, at::Tensor>>& owned) {
  std::vector<Unit::Member> members;
  for (const auto& [index, leaf] : owned) {
    StoredParameter& parameter = parameters_[index];
    if (parameter.unit >= 0) refuse_store(parameter.name + " appears twice", "Give it one name.");
    parameter.unit = static_cast<int>(block);
    parameter.member = members.size();
    members.push_back({.parameter = index,
                       .count = parameter.count,
                       .width = c10::elementSize(parameter.compute)});
  }
  TRIREME_CHECK(ownership_.add(std::move(members)) == static_cast<std::uint32_t>(block));
  units_.push_back(bytes_tensor(ownership_.units().back().bytes));
  for (const auto& [index, leaf] : owned) view(index).copy_(leaf);
}

at::Tensor ParameterStore::view(std::uint32_t index) const {
  const StoredParameter& parameter = parameters_[index];
  const auto unit = static_cast<std::size_t>(parameter.unit);
  const Unit::Member& member = ownership_.units()[unit].members[parameter.member];
  return units_[unit]
      .narrow(0, static_cast<std::int64_t>(member.offset),
              parameter.count * static_cast<std::int64_t>(member.width))
      .view(parameter.compute)
      .view(parameter.shape);
}

// complete() points the leaves whose owner comes later in the list.
void ParameterStore::point(std::size_t leaf) {
  const std::uint32_t index = parameter_of_leaf_[leaf];
  if (parameters_[index].unit >= 0) leaves_[leaf].set_data(view(index));
}

NamedTensors ParameterStore::named(std::uint32_t unit) const {
  NamedTensors tensors;
  for (const Unit::Member& member : ownership_.units()[unit].members)
    tensors.emplace_back(parameters_[member.parameter].name, view(member.parameter));
  return tensors;
}

void ParameterStore::replicate_unit(std::uint32_t unit, std::size_t first_buffer) {
  if (!options_.replicate) return;
  NamedTensors tensors = named(unit);
  tensors.insert(tensors.end(), buffers_.begin() + static_cast<std::ptrdiff_t>(first_buffer),
                 buffers_.end());
  options_.replicate(tensors);
}

void ParameterStore::keep_local_shard(std::uint32_t unit) {
  const Unit& layout = ownership_.units()[unit];
  const auto owner = static_cast<std::size_t>(options_.owner);
  own_.push_back(bytes_tensor(layout.cuts[owner + 1] - layout.cuts[owner]));
  std::memcpy(own_.back().data_ptr(),
              static_cast<const std::byte*>(units_[unit].const_data_ptr()) + layout.cuts[owner],
              own_.back().nbytes());
  hide(unit);
}

void ParameterStore::complete() {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [alias, owner] : ties_) {
    if (!is_here(alias)) continue;
    const auto found = index_.find(owner_of(alias, ties_));
    if (found == index_.end() || parameters_[found->second].unit < 0)
      refuse_store("tie: no parameter " + owner, "Name an existing parameter as the owner.");
  }
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) point(leaf);
  for (std::size_t block = 0; block < uses_.size(); ++block) {
    std::vector<std::uint32_t>& units = units_of_block_.emplace_back();
    if (!ownership_.units()[block].members.empty())
      units.push_back(static_cast<std::uint32_t>(block));
    for (const std::uint32_t index : parameter_of_[block]) {
      const auto unit = static_cast<std::uint32_t>(parameters_[index].unit);
      if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
    }
  }
  if (!options_.shards_weights && options_.replicate) {
    NamedTensors all;
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      all.emplace_back(parameters_[i].name, view(i));
    all.insert(all.end(), buffers_.begin(), buffers_.end());
    options_.replicate(all);
  }
  make_masters();
}

void ParameterStore::make_masters() {
  const auto owner = static_cast<std::size_t>(options_.owner);
  for (const Piece& piece : ownership_.pieces()[owner]) {
    const StoredParameter& parameter = parameters_[piece.parameter];
    const auto unit = static_cast<std::uint32_t>(parameter.unit);
    const Unit& layout = ownership_.units()[unit];
    const Unit::Member& member = layout.members[parameter.member];
    const std::size_t offset = member.offset + static_cast<std::size_t>(piece.begin) * member.width;
    const at::Tensor& memory = options_.shards_weights ? own_[unit] : units_[unit];
    // An empty piece has no place in this rank's interval.
    const std::size_t start = piece.size() == 0         ? offset
                              : options_.shards_weights ? layout.cuts[owner]
                                                        : 0;
    const at::Tensor compute = memory
                                   .narrow(0, static_cast<std::int64_t>(offset - start),
                                           piece.size() * static_cast<std::int64_t>(member.width))
                                   .view(parameter.compute);
    LocalShard part{.piece = piece};
    if (options_.precision == "own" || parameter.compute == master_type(parameter.compute)) {
      part.master = compute;
    } else {
      part.master = compute.to(master_type(parameter.compute));
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
                      .decay = parameter.decay});
  }
  return slices;
}

ParameterStore::OwnWeights ParameterStore::own_weights(std::uint32_t parameter) const {
  for (const LocalShard& part : parts_)
    if (part.piece.parameter == parameter)
      return {part.piece.begin, part.compute.defined() ? part.compute : part.master};
  return {0, at::empty({0}, at::TensorOptions().dtype(parameters_[parameter].compute))};
}

std::span<std::byte> ParameterStore::own(std::uint32_t unit) const {
  if (options_.shards_weights)
    return {static_cast<std::byte*>(own_[unit].data_ptr()), own_[unit].nbytes()};
  const Unit& layout = ownership_.units()[unit];
  const auto owner = static_cast<std::size_t>(options_.owner);
  return whole(unit).subspan(layout.cuts[owner], layout.cuts[owner + 1] - layout.cuts[owner]);
}

std::span<std::byte> ParameterStore::whole(std::uint32_t unit) const {
  void* data = units_[unit].storage().unsafeGetStorageImpl()->mutable_data();
  if (data == nullptr) return {};
  return {static_cast<std::byte*>(data), ownership_.units()[unit].bytes};
}

// Every view of the unit, also those that autograd has saved, shares this one storage.
void ParameterStore::show(std::uint32_t unit, void* whole) {
  units_[unit].storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(whole, at::Device(at::kCPU)));
}

std::vector<at::Tensor> ParameterStore::cold_memory() const {
  std::vector<at::Tensor> memory = own_;
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
  if (options_.shards_weights) return false;
  return std::all_of(parameters_.begin(), parameters_.end(), [](const StoredParameter& parameter) {
    return parameter.compute == master_type(parameter.compute);
  });
}

std::vector<NamedShard> ParameterStore::masters() const {
  std::vector<NamedShard> shards;
  if (options_.owners > 1 && masters_are_whole()) {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      shards.push_back({.name = parameters_[i].name,
                        .dtype = parameters_[i].master,
                        .shape = parameters_[i].shape,
                        .begin = 0,
                        .end = parameters_[i].count,
                        .local = view(i)});
    return shards;
  }
  for (const LocalShard& part : parts_) {
    const StoredParameter& parameter = parameters_[part.piece.parameter];
    const bool whole = part.piece.size() == parameter.count;
    shards.push_back({.name = parameter.name,
                      .dtype = parameter.master,
                      .shape = parameter.shape,
                      .begin = part.piece.begin,
                      .end = part.piece.end,
                      .local = whole ? part.master.view(parameter.shape) : part.master});
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
      const auto unit = static_cast<std::size_t>(parameters_[parameter_of_leaf_[leaf]].unit);
      if (!now[i].tensor.is_same(leaves_[leaf]))
        return "parameter " + uses_[block][i].name + " is another tensor than at the start";
      if (now[i].tensor.storage().unsafeGetStorageImpl() !=
          units_[unit].storage().unsafeGetStorageImpl())
        return "parameter " + uses_[block][i].name + " has other memory than at the start";
    }
  }
  return {};
}

std::int64_t ParameterStore::num_elements() const {
  std::int64_t sum = 0;
  for (const StoredParameter& parameter : parameters_) sum += parameter.count;
  return sum;
}

}  // namespace trireme::inline v0::parallel
