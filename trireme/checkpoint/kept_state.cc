#include "trireme/checkpoint/kept_state.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/check.h"
#include "trireme/checkpoint/moves.h"
#include "trireme/comm/texts.h"
#include "trireme/storage/saved_tensors.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::checkpoint {
namespace {

using nlohmann::json;

// With type and shape, so that only equal tensors match.
std::string key_of(const std::string& part, const NamedShard& shard) {
  std::string key = part + '/' + shard.name + ' ' + std::string(name_of(shard.dtype));
  for (const std::int64_t dim : shard.shape) key += ' ' + std::to_string(dim);
  return key;
}

// A row is a run of shards. A tensor that is cut by columns has very many shards, but one run.
json table_of(const Shards& shards) {
  std::vector<std::pair<std::string, storage::Run>> runs;
  for (const auto& [part, shard] : shards) {
    const std::string key = key_of(part, shard);
    if (runs.empty() || runs.back().first != key ||
        !runs.back().second.take(shard.begin, shard.end))
      runs.push_back({key, {shard.begin, shard.end - shard.begin, 0, 1}});
  }
  json rows = json::array();
  for (const auto& [key, run] : runs)
    rows.push_back({key, run.begin, run.length, run.stride, run.count});
  return rows;
}

void read_table(const json& rows, int rank, Tensors& tensors) {
  std::size_t index = 0;
  for (const json& row : rows) {
    const storage::Run run{row[1], row[2], row[3], row[4]};
    std::vector<Interval>& intervals = tensors[row[0].get<std::string>()];
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int64_t begin = run.begin + i * run.stride;
      intervals.push_back({begin, begin + run.length, rank, index++});
    }
  }
}

// The bytes of elements [begin, end) of the shard.
std::span<std::uint8_t> bytes_of(const NamedShard& shard, const at::Tensor& memory,
                                 std::int64_t begin, std::int64_t end) {
  const std::size_t width = size_of(shard.dtype);
  return {static_cast<std::uint8_t*>(memory.data_ptr()) +
              static_cast<std::size_t>(begin - shard.begin) * width,
          static_cast<std::size_t>(end - begin) * width};
}

// The tables of all ranks: the shards that each one keeps, and those that it needs.
class Inventory {
 public:
  Inventory(const Parts& parts, const KeptState* kept, comm::Communicator& world)
      : world_(world), own_(own_shards(parts)) {
    json steps = json::array();
    if (kept != nullptr)
      for (const KeptStep& step : kept->steps)
        steps.push_back({{"done", step.steps_done},
                         {"metadata", step.metadata},
                         {"rows", table_of(step.shards)}});
    const json mine{{"needs", table_of(own_)}, {"steps", steps}};
    for (const std::string& text : comm::exchange_texts(mine.dump(), world, "kept state"))
      all_.push_back(json::parse(text));
    for (int rank = 0; rank < world.size(); ++rank) read_table(all_[rank]["needs"], rank, need_);
  }

  /// All steps that some rank keeps, the newest first.
  std::vector<std::int64_t> steps() const {
    std::set<std::int64_t, std::greater<>> found;
    for (const json& rank : all_)
      for (const json& step : rank["steps"]) found.insert(step["done"].get<std::int64_t>());
    return {found.begin(), found.end()};
  }

  /// nullopt if some element of the step is nowhere.
  std::optional<std::vector<Move>> moves_of(std::int64_t done) const {
    Tensors have;
    for (int rank = 0; rank < world_.size(); ++rank)
      if (const json* step = step_of(rank, done)) read_table((*step)["rows"], rank, have);
    return plan_moves(need_, have, world_.size());
  }

  std::map<std::string, std::string> metadata_of(std::int64_t done) const {
    for (int rank = 0; rank < world_.size(); ++rank)
      if (const json* step = step_of(rank, done))
        return (*step)["metadata"].get<std::map<std::string, std::string>>();
    return {};
  }

  /// Carries out this rank's share of the moves.
  void move(const std::vector<Move>& moves, const KeptStep* kept) {
    std::vector<at::Tensor> memory;  // of `own_`, on the host
    for (const auto& [part, shard] : own_)
      memory.push_back(is_filled_in_place(shard)
                           ? shard.local
                           : at::empty_like(shard.local, at::Device(at::kCPU)));
    std::vector<Work> works;
    for (const Move& one : moves) {
      const bool sends = one.from.rank == world_.rank(), takes = one.to.rank == world_.rank();
      std::span<std::uint8_t> from, to;
      if (sends) {
        const NamedShard& shard = kept->shards[one.from.index].second;
        from = bytes_of(shard, shard.local, one.begin, one.end);
      }
      if (takes) to = bytes_of(own_[one.to.index].second, memory[one.to.index], one.begin, one.end);
      if (sends && takes) {
        std::memcpy(to.data(), from.data(), from.size());
      } else if (sends) {
        works.push_back(world_.send(Buffer::of(from), one.to.rank, 0, {.label = "kept state"}));
      } else if (takes) {
        works.push_back(world_.recv(Buffer::of(to), one.from.rank, 0, {.label = "kept state"}));
      }
    }
    Work::all(works).wait();
    for (std::size_t i = 0; i < own_.size(); ++i) {
      NamedShard& shard = own_[i].second;
      if (is_filled_in_place(shard)) continue;
      shard.load ? shard.load(memory[i].view(shard.shape)) : void(shard.local.copy_(memory[i]));
    }
  }

 private:
  static bool is_filled_in_place(const NamedShard& shard) {
    return shard.local.is_cpu() && !shard.load;
  }
  const json* step_of(int rank, std::int64_t done) const {
    for (const json& step : all_[rank]["steps"])
      if (step["done"].get<std::int64_t>() == done) return &step;
    return nullptr;
  }

  comm::Communicator& world_;
  Shards own_;
  std::vector<json> all_;  // by rank
  Tensors need_;
};

}  // namespace

Shards own_shards(const Parts& parts) {
  Shards shards;
  for (const auto& [part, saveable] : parts)
    for (NamedShard& shard : saveable->own_state()) shards.emplace_back(part, std::move(shard));
  return shards;
}

void KeptState::add(KeptStep step) {
  for (KeptStep& one : steps)
    if (one.steps_done == step.steps_done) {
      std::move(step.shards.begin(), step.shards.end(), std::back_inserter(one.shards));
      return;
    }
  steps.push_back(std::move(step));
}

KeptStep keep(const Parts& parts, std::int64_t steps_done,
              std::map<std::string, std::string> metadata) {
  KeptStep kept{
      .steps_done = steps_done, .metadata = std::move(metadata), .shards = own_shards(parts)};
  for (auto& [part, shard] : kept.shards)
    shard.local = shard.local.is_cpu() ? shard.local.clone() : tensor::on_host(shard.local);
  return kept;
}

std::optional<std::int64_t> restore_kept(const Parts& parts, const KeptState* kept,
                                         std::int64_t least, comm::Communicator& world) {
  Inventory inventory(parts, kept, world);
  for (const std::int64_t done : inventory.steps()) {
    if (done < least) break;
    const auto moves = inventory.moves_of(done);
    if (!moves) continue;
    const auto metadata = inventory.metadata_of(done);
    const auto goes_on = [&](const auto& one) {
      return one.second->can_go_on(metadata.at(one.first));
    };
    if (!std::all_of(parts.begin(), parts.end(), goes_on)) continue;
    const KeptStep* mine = nullptr;
    if (kept != nullptr)
      for (const KeptStep& step : kept->steps)
        if (step.steps_done == done) mine = &step;
    inventory.move(*moves, mine);
    for (const auto& [part, saveable] : parts) saveable->restored(metadata.at(part));
    return done;
  }
  return std::nullopt;
}

}  // namespace trireme::inline v0::checkpoint
