#include "trireme/sync/gathers/gather_parameter.h"

#include <ATen/Functions.h>

#include <vector>

#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

void gather_pieces(comm::Communicator& data, const Ownership& ownership, std::uint32_t parameter,
                   Buffer own, const Buffer& whole, const std::string& label) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(data.size()), 0);
  for (std::size_t owner = 0; owner < ownership.pieces().size(); ++owner)
    for (const Piece& piece : ownership.pieces()[owner])
      if (piece.parameter == parameter) counts[owner] = static_cast<std::size_t>(piece.size());
  own.count = counts[static_cast<std::size_t>(data.rank())];
  data.all_gather_v(own, whole, counts, {.label = label}).wait();
}

at::Tensor whole_weights(comm::Communicator& data, const ParameterStore& store,
                         std::uint32_t parameter) {
  if (!store.shards_weights()) return store.weights(parameter);
  const StoredParameter& stored = store.parameters()[parameter];
  const at::Tensor own = store.own_weights(parameter).weights;
  const at::Tensor whole = at::empty(stored.shape, own.options());
  gather_pieces(data, store.ownership(), parameter, tensor::to_buffer(own),
                tensor::to_buffer(whole), stored.name);
  return whole;
}

void keep_weights(const ParameterStore& store, std::uint32_t parameter, const at::Tensor& whole) {
  if (!store.shards_weights()) {
    store.weights(parameter).copy_(whole);
    return;
  }
  const ParameterStore::OwnWeights own = store.own_weights(parameter);
  own.weights.copy_(whole.flatten().narrow(0, own.begin, own.weights.numel()));
}

}  // namespace trireme::inline v0::parallel
