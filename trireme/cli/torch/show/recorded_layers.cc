// Records the layers of `trireme show context` and `trireme show expert`, without a model.
#include <ATen/Functions.h>
#include <ATen/ops/full.h>

#include "trireme/cli/torch/show/recorded_steps.h"
#include "trireme/cli/torch/show/step_recorder.h"
#include "trireme/layers/context/positions.h"
#include "trireme/layers/context/ring_attention.h"
#include "trireme/layers/expert/exchange.h"
#include "trireme/models/experts.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::cli {
namespace {

using Kind = show::StepSpan::Kind;

at::Tensor drawn(at::IntArrayRef sizes, int rank) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  tensor::fill_uniform(values, 1, "show/" + std::to_string(rank), -1, 1);
  return values;
}

constexpr std::int64_t kChunk = 8, kHeads = 2, kHeadWidth = 64;  // positions of a chunk

// Fills the table of chunks: which queries of this rank see keys of another rank in a hop.
class Meetings {
 public:
  Meetings(show::StepTable& table, int rank, int ranks)
      : table_(table), rank_(rank), ranks_(ranks) {}
  /// Returns the number of (query, key) pairs as a share of two whole chunks.
  double take(const parallel::RingHop& hop) {
    const std::int64_t length = 2 * ranks_ * kChunk;
    const auto own = parallel::positions_of(length, rank_, ranks_);
    const auto theirs = parallel::positions_of(length, hop.owner, ranks_);
    std::int64_t pairs = 0;
    for (std::int64_t query = hop.sight.first_query; query < own.numel(); ++query) {
      const std::int64_t keys = hop.sight.causal ? query + 1 : hop.sight.keys;
      for (std::int64_t key = 0; key < keys; ++key) {
        ++pairs;
        cell(own[query].item<std::int64_t>(), theirs[key].item<std::int64_t>()) = {
            "hop " + std::to_string(hop.hop), rank_};
      }
    }
    return static_cast<double>(pairs) / static_cast<double>(2 * kChunk * kChunk);
  }

 private:
  show::StepTable::Cell& cell(std::int64_t query, std::int64_t key) {
    return table_.rows[static_cast<std::size_t>(query / kChunk)]
        .second[static_cast<std::size_t>(key / kChunk)];
  }
  show::StepTable& table_;
  const int rank_, ranks_;
};

show::StepTable table_of_chunks(int ranks) {
  show::StepTable table{.title =
                            "which keys a chunk of queries meets in which hop around the ring"};
  for (int chunk = 0; chunk < 2 * ranks; ++chunk) {
    const int owner = std::min(chunk, 2 * ranks - 1 - chunk);
    table.columns.push_back("keys " + std::to_string(chunk));
    table.rows.push_back({"queries " + std::to_string(chunk) + ", on rank " + std::to_string(owner),
                          std::vector<show::StepTable::Cell>(static_cast<std::size_t>(2 * ranks))});
  }
  return table;
}

}  // namespace

show::RecordedStep record_context(int ranks) {
  check_ranks(ranks);
  show::RecordedStep step{
      .name = "Context parallel: ring attention on " + std::to_string(ranks) + " ranks",
      .about =
          "recorded on simulated ranks: two chunks of queries and keys take 1 ms forward and "
          "2 ms backward, a message 50 us and 10 ns a byte",
      .ranks = ranks};
  step.tables.push_back(table_of_chunks(ranks));
  step.timelines.push_back(record_timeline(
      ranks, "keys and values go around, in backward their gradients behind them",
      [&](comm::SimulatedRank& rank, RankRecorder& recorder) {
        Meetings meetings(step.tables[0], rank.rank, ranks);
        const parallel::OnRingHop on_hop = [&](const parallel::RingHop& hop) {
          const double share = meetings.take(hop);
          const auto cost =
              std::chrono::microseconds(static_cast<long>(1000 * share * (hop.backward ? 2 : 1)));
          recorder.pass(
              (hop.backward ? "B" : "F") + std::string(" keys of ") + std::to_string(hop.owner),
              hop.backward ? Kind::Backward : Kind::Forward, cost);
        };
        const at::Tensor qkv =
            drawn({1, 2 * kChunk, 3 * kHeads * kHeadWidth}, rank.rank).set_requires_grad(true);
        recorder.start();
        parallel::ring_attention(qkv, kHeads, true, *rank.world, &on_hop).sum().backward();
        recorder.stop();
      }));
  step.notes = {"the mask is causal: a query meets the keys before it. Rank r has chunks r and " +
                std::to_string(2 * ranks - 1) +
                " - r, so that every rank has as much to do in each hop"};
  return step;
}

namespace {

constexpr std::int64_t kTokens = 16, kWidth = 64, kExpertsOfRank = 2;

models::ExpertsSpec experts_of(comm::SimulatedRank& rank, RankRecorder& recorder,
                               std::vector<show::StepTable::Cell>& row) {
  const int experts = static_cast<int>(kExpertsOfRank) * rank.size;
  models::ExpertsSpec spec{
      .expert = {.width = kWidth, .hidden = 4 * kWidth, .stddev = 0.5, .stddev_down = 0.1},
      .experts = experts};
  const auto exchange = parallel::expert_exchange(*rank.world, experts);
  // Wraps the production exchange to record the tokens before and after the experts.
  const auto seen = [&recorder, &row, exchange, own = rank.rank](
                        const at::Tensor& rows, const std::vector<std::int64_t>& counts) {
    for (std::size_t expert = 0; expert < counts.size(); ++expert)
      row[expert] = {counts[expert] > 0 ? std::to_string(counts[expert]) : "", own};
    models::Exchanged here = exchange(rows, counts);
    std::int64_t tokens = 0;
    for (const std::int64_t count : here.counts) tokens += count;
    const std::string name = std::to_string(tokens) + " tokens";
    const auto cost = std::chrono::microseconds(50 * tokens);
    recorder.pass("F " + name, Kind::Forward, cost);
    here.back = [&recorder, back = here.back, name, cost](const at::Tensor& made) {
      return back(recorder.timed(made, "B " + name, 2 * cost));
    };
    return here;
  };
  spec.share = {.first = rank.rank * static_cast<int>(kExpertsOfRank),
                .count = static_cast<int>(kExpertsOfRank),
                .exchange = seen,
                .router = [](const at::Tensor& parameter) { return parameter; }};
  return spec;
}

}  // namespace

show::RecordedStep record_expert(int ranks) {
  check_ranks(ranks);
  show::RecordedStep step{
      .name = "Expert parallel: a mixture of " + std::to_string(kExpertsOfRank * ranks) +
              " experts on " + std::to_string(ranks) + " ranks",
      .about =
          "recorded on simulated ranks: an expert takes 50 us a token forward and 100 us "
          "backward, a message 50 us and 10 ns a byte",
      .ranks = ranks};
  show::StepTable table{.title = "how many of a rank's tokens go to which expert"};
  for (int expert = 0; expert < kExpertsOfRank * ranks; ++expert)
    table.columns.push_back("expert " + std::to_string(expert) + " on " +
                            std::to_string(expert / kExpertsOfRank));
  for (int rank = 0; rank < ranks; ++rank)
    table.rows.push_back(
        {"tokens of rank " + std::to_string(rank),
         std::vector<show::StepTable::Cell>(static_cast<std::size_t>(kExpertsOfRank * ranks))});
  models::RoutingCounts routed;
  step.timelines.push_back(record_timeline(
      ranks, "tokens travel to their experts and back, in backward their gradients do",
      [&](comm::SimulatedRank& rank, RankRecorder& recorder) {
        auto& row = table.rows[static_cast<std::size_t>(rank.rank)].second;
        const auto experts = models::make_experts(*models::local_layers(), {.block = "layer.0"},
                                                  experts_of(rank, recorder, row));
        const at::Tensor x = drawn({1, kTokens, kWidth}, rank.rank).set_requires_grad(true);
        models::RoutingCounts own;
        recorder.start();
        {
          const models::RoutingScope scope(own);
          experts->forward(x).y.sum().backward();
        }
        recorder.stop();
        routed.choices += own.choices;
        routed.dropped += own.dropped;
      }));
  step.tables.push_back(std::move(table));
  step.notes = {std::to_string(routed.dropped) + " of " + std::to_string(routed.choices) +
                " tokens had no place: an expert takes 1.25 times its even share of a sequence"};
  return step;
}

}  // namespace trireme::inline v0::cli
