#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/weights_hash.h"
#include "trireme/parallel/strategy_impl.h"
#include "trireme/tensor/convert.h"

namespace trireme {
inline namespace v0 {

// One parameter at a time is whole where the ranks hold parts.
std::string Strategy::Impl::weights_hash() {
  const auto common = common_weights();
  std::vector<NamedShard> whole = content();
  std::map<std::string, std::uint32_t> parts;  // parameters by name
  if (!store.masters_are_whole()) {
    for (std::uint32_t i = 0; i < store.parameters().size(); ++i)
      parts.emplace(store.parameters()[i].name, i);
  }
  for (const auto& [name, index] : parts) whole.push_back({.name = name});
  const std::vector<NamedShard> masters = store.masters();
  std::sort(whole.begin(), whole.end(),
            [](const NamedShard& a, const NamedShard& b) { return a.name < b.name; });
  WeightsHash hash;
  for (const NamedShard& shard : whole) {
    const auto part = parts.find(shard.name);
    const at::Tensor tensor =
        part == parts.end() ? shard.local : gathered_master(part->second, masters);
    const Buffer buffer = tensor::to_buffer(tensor);
    hash.add({shard.name, buffer.dtype, tensor.sizes().vec(), buffer.as_bytes()});
  }
  return hash.finish();
}

// Whole tensors that this rank has: buffers, and masters where they are whole.
std::vector<NamedShard> Strategy::Impl::content() const {
  std::vector<NamedShard> shards;
  if (store.masters_are_whole()) shards = store.masters();
  for (const auto& [name, tensor] : store.buffers())
    shards.push_back({.name = name,
                      .dtype = tensor::dtype_of(tensor),
                      .shape = tensor.sizes().vec(),
                      .begin = 0,
                      .end = tensor.numel(),
                      .local = tensor});
  return shards;
}

// Collective. `masters`: this rank's parts.
at::Tensor Strategy::Impl::gathered_master(std::uint32_t parameter,
                                           const std::vector<NamedShard>& masters) const {
  const parallel::StoredParameter& stored = store.parameters()[parameter];
  at::Tensor mine = at::empty({0}, tensor::scalar_type_of(stored.master));
  for (const NamedShard& shard : masters)
    if (shard.name == stored.name) mine = shard.local.flatten();
  std::vector<std::size_t> counts;
  for (const auto& pieces : store.ownership().pieces()) {
    counts.push_back(0);
    for (const parallel::Piece& piece : pieces)
      if (piece.parameter == parameter) counts.back() = static_cast<std::size_t>(piece.size());
  }
  const at::Tensor whole = at::empty(stored.shape, mine.options());
  groups.exchange
      ->all_gather_v(tensor::to_buffer(mine), tensor::to_buffer(whole), counts,
                     {.label = stored.name})
      .wait();
  return whole;
}

std::vector<NamedShard> Strategy::Impl::state() {
  if (local != nullptr) {
    local->meet();
    statistics.reload();
  }
  std::vector<NamedShard> shards = content();
  if (!store.masters_are_whole()) {
    for (NamedShard& shard : store.masters()) shards.push_back(std::move(shard));
  }
  for (NamedShard& shard : optimizer->state()) {
    shard.name = "optimizer/" + shard.name;
    shards.push_back(std::move(shard));
  }
  if (local != nullptr)
    for (NamedShard& shard : local->state()) shards.push_back(std::move(shard));
  return shards;
}

std::string Strategy::Impl::metadata() const {
  return nlohmann::json{{"optimizer", optimizer->name()},
                        {"optimizer_steps", optimizer->step_count()}}
      .dump();
}

void Strategy::Impl::restored(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("optimizer_steps") ||
      !json["optimizer_steps"].is_number_integer()) {
    throw CheckpointError("the training state's metadata is not what a Strategy writes",
                          {.rank = seat.world->rank(),
                           .operation = "checkpoint.resume",
                           .advice = "Use a checkpoint of the same program."});
  }
  // AdamW's and LAMB's tensors have the same names; checkpoints from before have no name here.
  const std::string own(optimizer->name());
  const std::string saved = json.contains("optimizer") && json["optimizer"].is_string()
                                ? json["optimizer"].get<std::string>()
                                : own;
  if (saved != own) {
    throw CheckpointError(
        "the checkpoint holds the state of the optimizer " + saved + ", and this run has " + own,
        {.rank = seat.world->rank(),
         .operation = "checkpoint.resume",
         .advice = "Go on with " + saved + ", or start anew from its weights."});
  }
  optimizer->set_step_count(json["optimizer_steps"].get<std::int64_t>());
  store.refresh();
  statistics.reload();
  if (local != nullptr) return local->restored();
  sync->publish().wait();
}

}  // namespace v0
}  // namespace trireme
