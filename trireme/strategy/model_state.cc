#include "trireme/strategy/model_state.h"

#include <ATen/Functions.h>

#include <deque>
#include <map>

#include "trireme/base/weights_hash.h"
#include "trireme/layers/tensor/part.h"
#include "trireme/sync/gathers/gather_parameter.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

std::string ModelState::hash(const std::vector<NamedShard>& more) const {
  std::map<std::string, const ModelTensor*> all;  // null: whole on every rank, and in no table
  for (const ModelTensor& one : parts_.parameters()) all.emplace(one.name, &one);
  for (const ModelTensor& one : parts_.buffer_table()) all.emplace(one.name, &one);
  std::map<std::string, at::Tensor> mine;
  for (const std::vector<NamedShard>& shards : {whole_tensors(), more}) {
    for (const NamedShard& shard : shards) {
      mine.emplace(shard.name, shard.local);
      all.try_emplace(shard.name, nullptr);
    }
  }
  // A parameter is gathered from the first part on this rank that has it.
  struct Cut {
    const ModelPart* part;
    std::uint32_t index;
    const std::vector<NamedShard>* masters;
  };
  std::map<std::string, Cut> cut;
  std::deque<std::vector<NamedShard>> masters;
  if (!masters_are_whole()) {
    for (const auto& part : parts_.parts()) {
      masters.push_back(part->store.masters());
      for (std::uint32_t i = 0; i < part->store.parameters().size(); ++i)
        cut.try_emplace(part->store.parameters()[i].name, Cut{part.get(), i, &masters.back()});
    }
  }
  WeightsHash hash;
  for (const auto& [name, one] : all) {
    const auto own = mine.find(name);
    const auto part = cut.find(name);
    at::Tensor tensor;
    if (own != mine.end())
      tensor = own->second;
    else if (part != cut.end())
      tensor = gathered_master(*part->second.part, part->second.index, *part->second.masters);
    if (tensor.defined())
      tensor = tensor::on_host(one != nullptr ? joined(name, tensor, one->part) : tensor);
    if (grid_.pipeline != nullptr) tensor = over_pipeline(tensor, *one);
    const Buffer buffer = tensor::to_buffer(tensor);
    hash.add({name, buffer.dtype, tensor.sizes().vec(), buffer.as_bytes()});
  }
  return hash.finish();
}

// The tensor on every rank of the pipeline. `own`: undefined on a rank that does not hold it.
at::Tensor ModelState::over_pipeline(const at::Tensor& own, const ModelTensor& one) const {
  const at::Tensor tensor = own.defined() ? own
                                          : at::empty(shape_of_whole(one.shape, one.part),
                                                      tensor::scalar_type_of(one.dtype));
  const int root = pipeline_.rank_of_stage()[static_cast<std::size_t>(one.stages.front())];
  grid_.pipeline->broadcast(tensor::bytes_of(tensor), root, {.label = one.name}).wait();
  return tensor;
}

// The whole tensor where ranks that share layers hold parts of it; then collective over them.
at::Tensor ModelState::joined(const std::string& name, const at::Tensor& own,
                              const models::Part& part) const {
  if (part.everywhere()) return own;
  std::vector<at::Tensor> all;
  std::vector<std::size_t> counts;
  std::int64_t total = 0;
  const std::vector<std::int64_t> whole = shape_of_whole(own.sizes().vec(), part);
  std::vector<std::vector<std::int64_t>> shapes;
  for (int rank = 0; rank < grid_.cut->size(); ++rank) {
    counts.push_back(0);
    if (!is_first_with(part, rank, grid_.tensor_ranks())) continue;
    shapes.push_back(shape_of_part(whole, part_on(part, rank, grid_.tensor_ranks())));
    counts.back() = static_cast<std::size_t>(c10::multiply_integers(shapes.back()));
    total += static_cast<std::int64_t>(counts.back());
  }
  const at::Tensor flat = at::empty({total}, own.options());
  const bool sends = counts[static_cast<std::size_t>(grid_.cut->rank())] > 0;
  grid_.cut
      ->all_gather_v(tensor::to_buffer(sends ? own.contiguous() : flat.narrow(0, 0, 0)),
                     tensor::to_buffer(flat), counts, {.label = name})
      .wait();
  std::int64_t at = 0;
  for (const std::vector<std::int64_t>& shape : shapes) {
    const std::int64_t count = c10::multiply_integers(shape);
    all.push_back(flat.narrow(0, at, count).view(shape));
    at += count;
  }
  return whole_of(all, part);
}

std::vector<NamedShard> ModelState::of_whole(std::vector<NamedShard> own) const {
  if (grid_.cut == nullptr) return own;
  std::map<std::string, models::Part> known;  // what this rank holds of each parameter
  for (const ModelTensor& one : parts_.parameters()) known.emplace(one.name, one.part);
  std::vector<NamedShard> shards;
  for (const NamedShard& shard : own) {
    const std::size_t slash = shard.name.find('/');
    const std::string name = slash == std::string::npos ? shard.name : shard.name.substr(slash + 1);
    auto found = known.find(name);
    if (found == known.end()) found = known.find(name.substr(0, name.rfind('.')));
    if (found == known.end()) {
      shards.push_back(shard);
      continue;
    }
    for (NamedShard& part : shards_of_whole(shard, found->second))
      shards.push_back(std::move(part));
  }
  return shards;
}

// The whole tensors of this rank: buffers, and masters if they are whole.
std::vector<NamedShard> ModelState::whole_tensors() const {
  std::vector<NamedShard> shards;
  if (masters_are_whole()) shards = parts_.masters();
  for (const auto& [name, tensor] : parts_.buffers()) {
    shards.push_back(tensor::whole_shard(name, tensor));
    shards.back().frozen = parts_.is_frozen(name);
  }
  return shards;
}

// The whole master weight of one parameter. Collective. `masters`: this rank's pieces of the part.
at::Tensor ModelState::gathered_master(const ModelPart& part, std::uint32_t parameter,
                                       const std::vector<NamedShard>& masters) const {
  const StoredParameter& stored = part.store.parameters()[parameter];
  at::Tensor mine = at::empty({0}, at::TensorOptions(tensor::at_device(part.store.master_device()))
                                       .dtype(tensor::scalar_type_of(stored.master)));
  for (const NamedShard& shard : masters)
    if (shard.name == stored.name) mine = shard.local.flatten();
  const at::Tensor whole = at::empty(stored.shape, mine.options());
  gather_pieces(*groups_.exchange, part.store.ownership(), parameter, tensor::to_buffer(mine),
                tensor::to_buffer(whole), stored.name);
  return whole;
}

std::vector<NamedShard> ModelState::shards() const {
  std::vector<NamedShard> shards = whole_tensors();
  if (!masters_are_whole())
    for (NamedShard& shard : parts_.masters()) shards.push_back(std::move(shard));
  return shards;
}

}  // namespace trireme::inline v0::parallel
