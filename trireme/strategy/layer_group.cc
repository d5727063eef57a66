#include "trireme/strategy/layer_group.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "trireme/layers/context/positions.h"
#include "trireme/layers/group_layers.h"
#include "trireme/layers/replicate.h"
#include "trireme/layers/tensor/layers.h"
#include "trireme/layers/tensor/regions.h"
#include "trireme/strategy/option_check.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

std::shared_ptr<const models::LayerFactory> layers_of(const Grid& grid, bool sequence) {
  if (grid.layer == nullptr) return nullptr;
  std::shared_ptr<const models::LayerFactory> layers = models::local_layers();
  if (grid.tensor != nullptr) layers = tensor_layers(*grid.tensor, sequence);
  if (grid.expert != nullptr) layers = expert_layers(*grid.expert, std::move(layers));
  if (grid.context != nullptr) layers = context_layers(*grid.context, std::move(layers));
  return layers;
}

}  // namespace

LayerGroup::LayerGroup(const Grid& grid, bool sequence)
    : grid_(grid), layers_(layers_of(grid, sequence)) {}

bool LayerGroup::cuts_sequences(const MicroBatch& micro, Sequences sequences) const {
  if (grid_.expert == nullptr || sequences == Sequences::Whole) return false;
  return sequences == Sequences::Cut ||
         std::all_of(micro.fields.begin(), micro.fields.end(), [this](const auto& field) {
           return field.second.size(0) % grid_.expert_ranks() == 0;
         });
}

MicroBatch LayerGroup::cut(const MicroBatch& micro, Sequences sequences) const {
  MicroBatch own = micro;
  if (cuts_sequences(micro, sequences))
    own = own_sequences(own, grid_.expert->rank(), grid_.expert->size());
  if (grid_.context != nullptr)
    own = cut_positions(own, grid_.context->rank(), grid_.context->size());
  return own;
}

at::Tensor LayerGroup::joined(at::Tensor loss, const MicroBatch& micro, Sequences sequences) const {
  if (grid_.context != nullptr) loss = leave_cut(loss, *grid_.context);
  if (cuts_sequences(micro, sequences)) loss = leave_cut(loss, *grid_.expert);
  return loss;
}

models::Value LayerGroup::joined(models::Value value) const {
  if (grid_.context == nullptr) return value;
  for (at::Tensor& own : value) {
    std::vector<std::int64_t> sizes = own.sizes().vec();
    sizes.insert(sizes.begin(), grid_.context->size());
    const at::Tensor all = at::empty(sizes, own.options());
    grid_.context
        ->all_gather(tensor::to_buffer(own.contiguous()), tensor::to_buffer(all),
                     {.label = "gather positions"})
        .wait();
    own = join_positions(all.unbind(), 1);
  }
  return value;
}

// Blocks that do not get their layers from a factory are whole on every rank.
void LayerGroup::check_model(const ModelParts& parts, int rank) const {
  bool cut = grid_.tensor == nullptr, shared = grid_.expert == nullptr;
  for (const ModelTensor& one : parts.parameters()) {
    cut |= one.part.of > 1;
    shared |= one.part.places > 1;
  }
  if (!cut) refuse_uncut_model(grid_.tensor_ranks(), rank);
  if (!shared) refuse_model_without_experts(grid_.expert_ranks(), rank);
}

void LayerGroup::check_gradients(std::span<const optim::OwnedSlice> owned, const ModelParts& parts,
                                 bool sharded) const {
  if (grid_.context != nullptr) require_equal_gradients(*grid_.context, owned);
  const auto compare = [&](comm::Communicator& group, const auto& has_part) {
    std::vector<optim::OwnedSlice> whole;
    for (const optim::OwnedSlice& slice : owned)
      if (!has_part(parts.parameters()[slice.parameter].part)) whole.push_back(slice);
    require_equal_gradients(group, whole);
  };
  if (grid_.expert != nullptr)
    compare(*grid_.expert, [](const models::Part& part) { return part.places > 1; });
  if (grid_.tensor != nullptr && !sharded)
    compare(*grid_.tensor, [](const models::Part& part) { return part.of > 1; });
}

}  // namespace trireme::inline v0::parallel
