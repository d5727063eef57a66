#include "trireme/cli/torch/show/recorded_steps.h"

#include <ATen/Functions.h>

#include <optional>

#include "trireme/cli/torch/show/step_recorder.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/show/drawing/words.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::cli {
namespace {

constexpr std::int64_t kBlockWidth = 192, kSamples = 64;  // of a block; of a micro-batch
constexpr int kBlocks = 4;

std::string kilobytes(std::int64_t bytes) {
  return show::fixed(static_cast<double>(bytes) / 1e3, 0) + " kB";
}

models::Blocks four_blocks() {
  return models::make_mlp({.widths = std::vector<std::int64_t>(kBlocks + 1, kBlockWidth)});
}

// A strategy, and this rank's share of a batch with `total` micro-batches.
class Trained {
 public:
  Trained(comm::SimulatedRank& rank, RankRecorder& recorder, StrategyOptions options,
          std::uint32_t total)
      : recorder(recorder), rank(rank.rank), total_(total) {
    parallel::StrategyContext env{.world = rank.world.get()};
    env.assign = [this](const kernel::Assignment& dealt) { assignment_ = dealt; };
    env.trace = recorder.trace;
    options.bucket_bytes = (kBlockWidth * kBlockWidth + kBlockWidth) * 4;
    strategy_.emplace(env, timed_blocks(four_blocks(), recorder), std::move(options),
                      optim::make_optimizer(AdamW{}));
  }
  void step() {
    Batch batch{.total = total_, .global_count = total_, .step = steps_++};
    for (const std::uint32_t i : leaves_of(assignment_, total_, rank))
      batch.micro.push_back({.index = i,
                             .count = 1,
                             .fields = {{"features", at::full({kSamples, kBlockWidth}, 0.01)}}});
    strategy_->step(batch, [](const models::Value& output, const MicroBatch&) {
      return output.at(0).pow(2).sum();
    });
  }
  Strategy& strategy() { return *strategy_; }

  const RankRecorder& recorder;
  const int rank;

 private:
  const std::uint32_t total_;
  std::int64_t steps_ = 0;
  kernel::Assignment assignment_;
  std::optional<Strategy> strategy_;
};

// Records the second step, since the first one finds the order of the buckets. Calls `see` for each
// rank, one at a time, with the hash of its weights.
show::StepTimeline second_step(int ranks, const std::string& about, const StrategyOptions& options,
                               std::uint32_t total,
                               const std::function<void(Trained&, const std::string&)>& see) {
  return record_timeline(ranks, about, [&](comm::SimulatedRank& rank, RankRecorder& recorder) {
    Trained trained(rank, recorder, options, total);
    trained.step();
    recorder.start();
    trained.step();
    recorder.stop();
    see(trained, trained.strategy().weights_hash());
  });
}

// "outputs 64-127 of 192", or "all".
std::string part_text(const models::NamedTensor& one) {
  const models::Part& part = one.part;
  if (part.everywhere()) return "all";
  const std::int64_t begin = part.whole * part.index / part.of,
                     end = part.whole * (part.index + 1) / part.of;
  return (part.dim == 0 ? "outputs " : "inputs ") + std::to_string(begin) + "-" +
         std::to_string(end - 1) + " of " + std::to_string(part.whole);
}

const char* const kClock =
    "recorded on simulated ranks: a pass takes 1 ms forward and 2 ms backward, a message 50 us "
    "and 10 ns a byte";

}  // namespace

show::RecordedStep record_overlap(int ranks) {
  check_ranks(ranks);
  show::RecordedStep step{.name = "Overlap: data parallel on " + std::to_string(ranks) + " ranks",
                          .about = kClock,
                          .ranks = ranks};
  std::vector<std::string> hashes;
  for (const bool overlap : {true, false}) {
    StrategyOptions options;
    options.overlap = overlap;
    step.timelines.push_back(second_step(
        ranks,
        overlap ? "each bucket of gradients is reduced as soon as it is full"
                : "buckets are reduced after backward",
        options, static_cast<std::uint32_t>(ranks), [&](Trained& one, const std::string& hash) {
          if (one.rank == 0) hashes.push_back(hash);
        }));
  }
  const auto taken = [&](std::size_t i) { return show::fixed(1e3 * step.timelines[i].end(), 2); };
  step.notes = {"the step takes " + taken(0) + " ms with overlap, " + taken(1) + " ms without",
                hashes[0] == hashes[1] ? "both end with the same bits of all weights"
                                       : "the weights differ, which is wrong"};
  return step;
}

show::RecordedStep record_zero1(int ranks) {
  check_ranks(ranks);
  show::RecordedStep step{
      .name = "ZeRO-1 on " + std::to_string(ranks) + " ranks", .about = kClock, .ranks = ranks};
  show::StepTable table{.title = "what each rank keeps",
                        .rows = {{"weights", {}}, {"gradient sums", {}}, {"optimizer state", {}}}};
  for (auto& row : table.rows) row.second.resize(static_cast<std::size_t>(ranks));
  StrategyOptions options;
  options.sync = "zero1";
  step.timelines.push_back(
      second_step(ranks, "a step", options, static_cast<std::uint32_t>(ranks),
                  [&](Trained& one, const std::string&) {
                    Strategy& strategy = one.strategy();
                    const int rank = one.rank;
                    std::int64_t state = 0;
                    for (const NamedShard& shard : strategy.state())
                      if (shard.name.starts_with("optimizer/")) state += shard.local.numel() * 4;
                    const auto at = static_cast<std::size_t>(rank);
                    table.rows[0].second[at] = {kilobytes(strategy.num_parameters() * 4), rank};
                    table.rows[1].second[at] = {kilobytes(strategy.gradient_bytes()), rank};
                    table.rows[2].second[at] = {kilobytes(state), rank};
                  }));
  for (int rank = 0; rank < ranks; ++rank) table.columns.push_back("rank " + std::to_string(rank));
  step.tables.push_back(std::move(table));
  step.notes = {
      "forward and backward are plain data parallel's; then each rank gets its part of the sums, "
      "updates its part",
      "of the weights with its part of the optimizer state, and gathers the others' parts"};
  return step;
}

show::RecordedStep record_tensor(int ranks) {
  check_ranks(ranks);
  show::RecordedStep step{.name = "Tensor parallel on " + std::to_string(ranks) + " ranks",
                          .about = kClock,
                          .ranks = ranks};
  show::StepTable table{.title = "what each rank has of the four blocks' parameters"};
  for (int rank = 0; rank < ranks; ++rank) table.columns.push_back("rank " + std::to_string(rank));
  StrategyOptions options;
  options.tensor = ranks;
  const auto list = [&](Trained& one, const std::string&) {
    const auto& parameters = one.recorder.parameters;
    table.rows.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto& [name, cells] = table.rows[i];
      name = parameters[i].name;
      cells.resize(static_cast<std::size_t>(ranks));
      const std::string part = part_text(parameters[i]);
      cells[static_cast<std::size_t>(one.rank)] = {part, part == "all" ? -1 : one.rank};
    }
  };
  step.timelines.push_back(second_step(
      ranks, "a step of one micro-batch, which all ranks compute together", options, 1, list));
  step.tables.push_back(std::move(table));
  step.notes = {
      "even blocks are cut by outputs and need no sum; odd ones by inputs: their outputs are "
      "summed over the ranks in forward,",
      "and the gradients of the even ones' inputs in backward"};
  return step;
}

}  // namespace trireme::inline v0::cli
