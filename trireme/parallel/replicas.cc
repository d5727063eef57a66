#include "trireme/parallel/replicas.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <map>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"

namespace trireme {
inline namespace v0 {
namespace parallel {
namespace {

constexpr std::int64_t kAlignment = 64;

[[noreturn]] void refuse(const std::string& message, const std::string& advice) {
  throw ConfigError(message, {.operation = "model", .advice = advice});
}

bool fits(at::ScalarType type, const std::string& precision) {
  if (precision == "fp64") return type == at::kDouble;
  if (precision == "fp32") return type == at::kFloat;
  return type == at::kFloat || type == at::kBFloat16;
}

// "head.weight" -> "embed.weight", followed to the end.
std::string owner_of(std::string name, const std::map<std::string, std::string>& ties) {
  for (std::size_t hops = 0; ties.contains(name); ++hops) {
    if (hops > ties.size()) refuse("the tie of " + name + " is a circle", "Tie to one owner.");
    name = ties.at(name);
  }
  return name;
}

struct Packer {
  at::ScalarType type;
  std::int64_t bytes = 0;
  std::vector<std::pair<std::size_t, std::int64_t>> places = {};  // parameter, offset

  void add(std::size_t parameter, std::int64_t numel) {
    places.emplace_back(parameter, bytes);
    const std::int64_t size = numel * static_cast<std::int64_t>(c10::elementSize(type));
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  // One allocation (LibTorch aligns it to 64 bytes); views of it in parameter order.
  template <class Take>
  void pack(const std::vector<ReplicaParameter>& parameters, Take take) const {
    const at::Tensor arena = at::zeros({bytes}, at::TensorOptions().dtype(at::kByte));
    TRIREME_CHECK(reinterpret_cast<std::uintptr_t>(arena.data_ptr()) % kAlignment == 0u);
    for (const auto& [index, offset] : places) {
      const auto& shape = parameters[index].shape;
      const std::int64_t size =
          c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(type));
      take(index, arena.narrow(0, offset, size).view(type).view(shape));
    }
  }
};

// What the blocks hold, before it is packed: the first leaf of every parameter.
struct Found {
  std::vector<at::Tensor> first_leaf;
};

Found find_parameters(const Stage& stage, const std::map<std::string, std::string>& ties,
                      const std::string& precision, Replicas& out) {
  Found found;
  std::map<std::string, std::uint32_t> index_of;
  for (std::size_t block = 0; block < stage.members().size(); ++block) {
    const Stage::Member& member = stage.members()[block];
    out.uses.emplace_back();
    out.parameter_of.emplace_back();
    for (const models::NamedTensor& own : member.block->parameters()) {
      const std::string name = member.name + "." + own.name;
      if (!fits(own.tensor.scalar_type(), precision))
        refuse("parameter " + name + " is " + std::string(c10::toString(own.tensor.scalar_type())) +
                   ", the strategy's precision is " + precision,
               "Build the model with the same precision.");
      const std::string owner = owner_of(name, ties);
      const auto [at, added] =
          index_of.emplace(owner, static_cast<std::uint32_t>(out.parameters.size()));
      if (added) {
        out.parameters.push_back(
            {.name = owner, .shape = own.tensor.sizes().vec(), .decay = own.decay});
        found.first_leaf.push_back(own.tensor);
      } else if (out.parameters[at->second].shape != own.tensor.sizes().vec()) {
        refuse(name + " is tied to " + owner + " of another shape", "Tie equal shapes.");
      }
      // The owner's values count, wherever it stands in the list.
      if (name == owner) found.first_leaf[at->second] = own.tensor;
      const DType sum = own.tensor.scalar_type() == at::kDouble ? DType::F64 : DType::F32;
      out.use_of_leaf.push_back(
          {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(out.uses[block].size())});
      out.uses[block].push_back(
          {name, own.tensor.numel(), sum, own.tensor.dim() > 1 ? own.tensor.size(0) : 1});
      out.parameter_of[block].push_back(at->second);
      out.leaves.push_back(own.tensor);
    }
    for (const models::NamedTensor& buffer : member.block->buffers())
      out.buffers.emplace_back(member.name + "." + buffer.name, buffer.tensor);
  }
  for (const auto& [alias, owner] : ties)
    if (!index_of.contains(owner_of(alias, ties)))
      refuse("tie: no parameter " + owner, "Name an existing parameter as the owner.");
  return found;
}

}  // namespace

Replicas make_replicas(const Stage& stage, const std::vector<models::Tie>& ties,
                       const std::string& precision) {
  const c10::AutoGradMode no_grad(false);
  std::map<std::string, std::string> owners;
  for (const models::Tie& tie : ties) owners[tie.alias] = tie.owner;
  Replicas replicas;
  const Found found = find_parameters(stage, owners, precision, replicas);
  Packer masters{precision == "fp64" ? at::kDouble : at::kFloat};
  Packer copies{at::kBFloat16};
  for (std::size_t i = 0; i < found.first_leaf.size(); ++i) {
    masters.add(i, found.first_leaf[i].numel());
    if (found.first_leaf[i].scalar_type() == at::kBFloat16)
      copies.add(i, found.first_leaf[i].numel());
  }
  masters.pack(replicas.parameters, [&](std::size_t i, const at::Tensor& view) {
    replicas.parameters[i].master = view;
    view.copy_(found.first_leaf[i]);
  });
  copies.pack(replicas.parameters, [&](std::size_t i, const at::Tensor& view) {
    replicas.parameters[i].compute = view;
  });
  replicas.refresh();
  std::size_t flat = 0;
  for (const auto& block : replicas.parameter_of) {
    for (const std::uint32_t index : block) {
      const ReplicaParameter& parameter = replicas.parameters[index];
      replicas.leaves[flat++].set_data(parameter.compute.defined() ? parameter.compute
                                                                   : parameter.master);
    }
  }
  return replicas;
}

std::vector<optim::OwnedSlice> Replicas::slices() const {
  std::vector<optim::OwnedSlice> slices;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ReplicaParameter& parameter = parameters[i];
    slices.push_back(
        {.parameter = static_cast<std::uint32_t>(i),
         .name = parameter.name,
         .begin = 0,
         .end = parameter.master.numel(),
         .master_dtype = tensor::dtype_of(parameter.master),
         .weight = parameter.master.data_ptr(),
         .compute = parameter.compute.defined() ? parameter.compute.data_ptr() : nullptr,
         .decay = parameter.decay});
  }
  return slices;
}

std::vector<optim::ParameterInfo> Replicas::infos() const {
  std::vector<optim::ParameterInfo> infos;
  for (const ReplicaParameter& parameter : parameters)
    infos.push_back({parameter.name, parameter.shape});
  return infos;
}

std::int64_t Replicas::num_elements() const {
  std::int64_t sum = 0;
  for (const ReplicaParameter& parameter : parameters) sum += parameter.master.numel();
  return sum;
}

void Replicas::refresh() {
  const c10::AutoGradMode no_grad(false);
  for (const ReplicaParameter& parameter : parameters)
    if (parameter.compute.defined()) parameter.compute.copy_(parameter.master);
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
