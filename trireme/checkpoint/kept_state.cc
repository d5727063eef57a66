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
#include "trireme/observe/log.h"
#include "trireme/storage/saved_tensors.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::checkpoint {
namespace {

using nlohmann::json;

// With type and shape, so that only equal tensors match. The number of ranks' rows may differ.
std::string key_of(const std::string& part, const NamedShard& shard) {
  std::string key = part + '/' + shard.name + ' ' + std::string(name_of(shard.dtype));
  for (std::size_t i = shard.row_of_rank ? 1 : 0; i < shard.shape.size(); ++i)
    key += ' ' + std::to_string(shard.shape[i]);
  return key;
}

// A run of shards, in the tables that ranks exchange. A tensor that is cut by columns has very many
// shards, but one run. `ranks`: of how many ranks the tensor has rows; 0: it has none of that kind.
struct TableRow {
  std::string key;
  std::int64_t ranks = 0;
  storage::Run run;
  // `of`: how many rows the tensor has, if they are of ranks.
  std::string tensor(std::int64_t of) const {
    return ranks == 0 ? key : key + " of " + std::to_string(of) + " ranks";
  }
};

json table_of(const Shards& shards) {
  std::vector<TableRow> table;
  for (const auto& [part, shard] : shards) {
    TableRow row{key_of(part, shard),
                 shard.row_of_rank ? shard.shape[0] : 0,
                 {shard.begin, shard.end - shard.begin, 0, 1}};
    if (table.empty() || table.back().tensor(table.back().ranks) != row.tensor(row.ranks) ||
        !table.back().run.take(shard.begin, shard.end))
      table.push_back(std::move(row));
  }
  json rows = json::array();
  for (const auto& [key, ranks, run] : table)
    rows.push_back({key, ranks, run.begin, run.length, run.stride, run.count});
  return rows;
}

TableRow row_from(const json& row) {
  return {row[0].get<std::string>(), row[1].get<std::int64_t>(), {row[2], row[3], row[4], row[5]}};
}

// The shards that a rank keeps.
void read_kept(const json& rows, int rank, Tensors& tensors) {
  std::size_t index = 0;
  for (const json& from : rows) {
    const TableRow row = row_from(from);
    const storage::Run& run = row.run;
    std::vector<Interval>& intervals = tensors[row.tensor(row.ranks)];
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int64_t begin = run.begin + i * run.stride;
      intervals.push_back({begin, begin + run.length, rank, index++});
    }
  }
}

// The elements that a rank needs, from a step of which the rows of `kept_ranks` ranks were kept.
void read_needs(const json& rows, int rank, std::int64_t kept_ranks, Tensors& tensors) {
  std::size_t index = 0;
  for (const json& from : rows) {
    const TableRow row = row_from(from);
    const storage::Run& run = row.run;
    std::vector<Interval>& intervals = tensors[row.tensor(kept_ranks)];
    if (row.ranks == 0) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t begin = run.begin + i * run.stride;
        intervals.push_back({begin, begin + run.length, rank, index++});
      }
    } else {
      const std::int64_t end = kept_ranks * run.length;
      for (std::int64_t at = run.begin; at < end; at += row.ranks * run.length)
        intervals.push_back({at, at + run.length, rank, index});
      ++index;
    }
  }
}

bool is_covered(const Interval& one, const std::vector<Interval>& by) {
  return std::any_of(by.begin(), by.end(), [&](const Interval& other) {
    return other.begin <= one.begin && other.end >= one.end;
  });
}

// Leaves out of `need` what the step never had and, unless `whole`, what no rank has any more;
// returns whether there was some of the latter.
bool leave_out(Tensors& need, const Tensors& have, bool whole) {
  bool lost = false;
  for (auto next = need.begin(); next != need.end();) {
    const auto one = next++;
    if (!can_be_left_out(one->first)) continue;
    const auto found = have.find(one->first);
    const auto lacks = [&](const Interval& interval) {
      return !is_covered(interval, found->second);
    };
    if (found == have.end())
      need.erase(one);
    else if (!whole && std::erase_if(one->second, lacks) > 0)
      lost = true;
  }
  return lost;
}

// The bytes of elements [begin, end) in `memory`, which has those from `first` on.
std::span<std::uint8_t> bytes_of(const NamedShard& shard, const at::Tensor& memory,
                                 std::int64_t first, std::int64_t begin, std::int64_t end) {
  const std::size_t width = size_of(shard.dtype);
  return {static_cast<std::uint8_t*>(memory.data_ptr()) +
              static_cast<std::size_t>(begin - first) * width,
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
  }

  /// Whether the ranks need tensors that can be left out.
  bool may_lose() const {
    const auto can_be = [](const json& row) { return can_be_left_out(row[0].get<std::string>()); };
    return std::any_of(all_.begin(), all_.end(), [&](const json& rank) {
      return std::any_of(rank["needs"].begin(), rank["needs"].end(), can_be);
    });
  }

  /// All steps that some rank keeps, the newest first.
  std::vector<std::int64_t> steps() const {
    std::set<std::int64_t, std::greater<>> found;
    for (const json& rank : all_)
      for (const json& step : rank["steps"]) found.insert(step["done"].get<std::int64_t>());
    return {found.begin(), found.end()};
  }

  struct Plan {
    std::vector<Move> moves;
    bool loses = false;  // something is left out
  };
  /// nullopt if some element of the step is nowhere; if not `whole`, one that must not be left out.
  std::optional<Plan> plan_of(std::int64_t done, bool whole) const {
    Tensors have, need;
    for (int rank = 0; rank < world_.size(); ++rank)
      if (const json* step = step_of(rank, done)) read_kept((*step)["rows"], rank, have);
    const std::int64_t ranks = kept_ranks(done);
    for (int rank = 0; rank < world_.size(); ++rank)
      read_needs(all_[rank]["needs"], rank, ranks, need);
    const bool loses = leave_out(need, have, whole);
    auto moves = plan_moves(need, have, world_.size());
    if (!moves) return std::nullopt;
    return Plan{std::move(*moves), loses};
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
      memory.push_back(is_filled_in_place(shard) ? shard.local
                       : can_be_left_out(part + '/' + shard.name)
                           ? shard.local.cpu().clone()  // stays if nobody has it
                           : at::empty_like(shard.local, at::Device(at::kCPU)));
    std::map<std::pair<std::size_t, std::int64_t>, at::Tensor> rows;  // by shard and beginning
    const auto memory_of = [&](const Interval& to) {
      const at::Tensor& own = memory[to.index];
      if (!own_[to.index].second.row_of_rank) return own;
      at::Tensor& row = rows[{to.index, to.begin}];
      if (!row.defined()) row = at::empty_like(own);
      return row;
    };
    std::vector<Work> works;
    for (const Move& one : moves) {
      const bool sends = one.from.rank == world_.rank(), takes = one.to.rank == world_.rank();
      std::span<std::uint8_t> from, to;
      if (sends) {
        const NamedShard& shard = kept->shards[one.from.index].second;
        from = bytes_of(shard, shard.local, shard.begin, one.begin, one.end);
      }
      if (takes) {
        const NamedShard& shard = own_[one.to.index].second;
        const std::int64_t first = shard.row_of_rank ? one.to.begin : shard.begin;
        to = bytes_of(shard, memory_of(one.to), first, one.begin, one.end);
      }
      if (sends && takes) {
        std::memcpy(to.data(), from.data(), from.size());
      } else if (sends) {
        works.push_back(world_.send(Buffer::of(from), one.to.rank, 0, {.label = "kept state"}));
      } else if (takes) {
        works.push_back(world_.recv(Buffer::of(to), one.from.rank, 0, {.label = "kept state"}));
      }
    }
    Work::all(works).wait();
    for (std::size_t i = 0; i < own_.size(); ++i)
      if (own_[i].second.row_of_rank) memory[i].zero_();
    for (const auto& [place, row] : rows) memory[place.first].add_(row);
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
  // The number of ranks whose rows are taken: of which all are kept, else of which most are.
  std::int64_t kept_ranks(std::int64_t done) const {
    struct Kept {
      std::set<std::string> tensors;
      std::set<std::pair<std::string, std::int64_t>> rows;
    };
    std::map<std::int64_t, Kept> found;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const json* step = step_of(rank, done);
      if (step == nullptr) continue;
      for (const json& from : (*step)["rows"]) {
        const auto [key, ranks, run] = row_from(from);
        if (ranks == 0) continue;
        found[ranks].tensors.insert(key);
        for (std::int64_t i = 0; run.length > 0 && i < run.count; ++i)
          found[ranks].rows.emplace(key, run.begin + i * run.stride);
      }
    }
    std::pair<bool, std::size_t> most{};
    std::int64_t best = 0;
    for (const auto& [ranks, kept] : found) {
      const std::size_t all = kept.tensors.size() * static_cast<std::size_t>(ranks);
      const std::pair rate{kept.rows.size() == all, kept.rows.size()};
      if (best != 0 && rate <= most) continue;
      most = rate;
      best = ranks;
    }
    return best;
  }
  const json* step_of(int rank, std::int64_t done) const {
    for (const json& step : all_[rank]["steps"])
      if (step["done"].get<std::int64_t>() == done) return &step;
    return nullptr;
  }

  comm::Communicator& world_;
  Shards own_;
  std::vector<json> all_;  // by rank
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
                                         std::int64_t least, comm::Communicator& world,
                                         bool lossless) {
  Inventory inventory(parts, kept, world);
  for (const bool whole : {true, false}) {
    if (!whole && (lossless || !inventory.may_lose())) break;
    for (const std::int64_t done : inventory.steps()) {
      if (done < least) break;
      const auto plan = inventory.plan_of(done, whole);
      if (!plan) continue;
      const auto metadata = inventory.metadata_of(done);
      const auto goes_on = [&](const auto& one) {
        return one.second->can_go_on(metadata.at(one.first));
      };
      if (!std::all_of(parts.begin(), parts.end(), goes_on)) continue;
      const KeptStep* mine = nullptr;
      if (kept != nullptr)
        for (const KeptStep& step : kept->steps)
          if (step.steps_done == done) mine = &step;
      inventory.move(plan->moves, mine);
      for (const auto& [part, saveable] : parts) saveable->restored(metadata.at(part));
      if (plan->loses && world.rank() == 0)
        observe::info(
            "some of what ranks had not sent of their gradients (comm.compression) is lost; "
            "checkpoint.memory = 1 keeps copies of it");
      return done;
    }
  }
  return std::nullopt;
}

}  // namespace trireme::inline v0::checkpoint
