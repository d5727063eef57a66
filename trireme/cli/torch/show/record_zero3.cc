#include "trireme/cli/torch/show/record_zero3.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/simulate.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/show/drawing/words.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::cli {
namespace {

using parallel::ShardEvent;
using ShardKind = ShardEvent::Kind;
using show::Zero3Moment;
using show::Zero3Recording;

// Wide enough that a matrix has a chunk for each of kMostRanks ranks.
constexpr std::int64_t kZero3Width = 192;
constexpr int kMostRanks = 8, kMostBlocks = 8, kMostRounds = 4;

// Turns the events of a rank into its moments.
class Moments {
 public:
  explicit Moments(std::vector<Zero3Moment>& out, int rounds) : out_(out), rounds_(rounds) {}

  void take(const ShardEvent& event) {
    switch (event.kind) {
      case ShardKind::Gather:
        whole_.push_back(event.number);
        weights_ += event.bytes;
        break;
      case ShardKind::Free:
        whole_.erase(std::find(whole_.begin(), whole_.end(), event.number));
        weights_ -= event.bytes;
        freed_.push_back(event.number);
        break;
      case ShardKind::Send:
        buckets_ += event.bytes;
        if (!out_.empty()) out_.back().sent.push_back(event.number);
        break;
      case ShardKind::Fold:
        buckets_ -= event.bytes;
        if (!out_.empty()) out_.back().added.push_back(event.number);
        break;
      case ShardKind::Use:
        begin(name_of(event.use), event.use.block);
    }
    if (out_.empty()) return;
    Zero3Moment& now = out_.back();
    if (event.kind == ShardKind::Gather) now.whole.push_back(event.number);
    now.weight_bytes = std::max(now.weight_bytes, weights_);
    now.bucket_bytes = std::max(now.bucket_bytes, buckets_);
  }
  void end() { begin("end", -1); }

 private:
  void begin(std::string name, int block) {
    out_.push_back({.name = std::move(name),
                    .block = block,
                    .whole = whole_,
                    .freed = std::exchange(freed_, {}),
                    .weight_bytes = weights_,
                    .bucket_bytes = buckets_});
  }
  std::string name_of(const parallel::Use& use) {
    const bool forward = use.phase == parallel::Phase::Forward;
    if (forward && use.block == 0) ++round_;
    std::string name = (forward ? "F" : "B") + std::to_string(use.block);
    if (rounds_ > 1) name += "." + std::to_string(round_ - 1);
    return name;
  }

  std::vector<Zero3Moment>& out_;
  const int rounds_;
  int round_ = 0;
  std::vector<std::uint32_t> whole_, freed_;
  std::size_t weights_ = 0, buckets_ = 0;
};

}  // namespace

show::Zero3Recording record_zero3(const Zero3Options& options) {
  show::check_range("ranks", options.ranks, 2, kMostRanks);
  show::check_range("blocks", options.blocks, 2, kMostBlocks);
  show::check_range("micro-batches a rank", options.rounds, 1, kMostRounds);
  const auto parameters = static_cast<std::size_t>(kZero3Width * kZero3Width + kZero3Width);
  Zero3Recording recording{.ranks = options.ranks,
                           .blocks = options.blocks,
                           .rounds = options.rounds,
                           .block_bytes = parameters * sizeof(float)};
  recording.model_bytes = recording.block_bytes * static_cast<std::size_t>(options.blocks);
  recording.own_bytes = recording.model_bytes / static_cast<std::size_t>(options.ranks);
  recording.moments.resize(static_cast<std::size_t>(options.ranks));
  const models::Blocks model =
      models::make_mlp({.widths = std::vector<std::int64_t>(
                            static_cast<std::size_t>(options.blocks) + 1, kZero3Width)});
  const auto total = static_cast<std::uint32_t>(options.ranks * options.rounds);
  comm::SimulationOptions simulation;
  simulation.network.seed = options.seed;
  comm::simulate(options.ranks, simulation, [&](comm::SimulatedRank& rank) {
    Moments moments(recording.moments[static_cast<std::size_t>(rank.rank)], options.rounds);
    kernel::Assignment assignment;
    parallel::StrategyContext env{.world = rank.world.get()};
    env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
    env.on_shard_event = [&](const ShardEvent& event) { moments.take(event); };
    Strategy strategy(
        env, model,
        {.sync = "zero3", .bucket_bytes = static_cast<std::int64_t>(recording.block_bytes)},
        optim::make_optimizer(Sgd{}));
    Batch batch{.total = total, .global_count = total};
    for (const std::uint32_t i : leaves_of(assignment, total, rank.rank))
      batch.micro.push_back(
          {.index = i, .count = 1, .fields = {{"features", at::full({1, kZero3Width}, 0.01)}}});
    strategy.step(batch, [](const models::Value& output, const MicroBatch&) {
      return output.at(0).pow(2).sum();
    });
    moments.end();
  });
  return recording;
}

}  // namespace trireme::inline v0::cli
