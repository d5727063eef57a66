// A checkpoint goes from every layout to every other: what was saved on one is read on the other
// and saved again there, and both files have the same bytes. So weights, optimizer state, averages
// and buffers are whole in a checkpoint, whatever axes hold them, and none needs a conversion.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "trireme/checkpoint/shards.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::layouts_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlock = 8, kVocab = 22;  // 4 tensor-parallel ranks hold 5, 6, 5, 6 rows
constexpr std::uint32_t kMicroBatches = 8;

struct Layout {
  int ranks = 1;
  StrategyOptions options = {};
};

std::string name_of(const Layout& layout) {
  const StrategyOptions& o = layout.options;
  return std::to_string(layout.ranks) + " ranks, " + o.sync + ", pipeline " +
         std::to_string(o.pipeline) + " " + o.schedule + ", context " + std::to_string(o.context) +
         ", tensor " + std::to_string(o.tensor) + (o.sequence ? ", sequence" : "") + ", expert " +
         std::to_string(o.expert) + (o.shares == "equal" ? "" : ", shares " + o.shares);
}

MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  at::Tensor noise = at::empty({4, kBlock + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, std::to_string(step) + "/" + std::to_string(index), 0, kVocab);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(kVocab - 1);
  return {.index = index,
          .first_sample = 4 * index,
          .count = 4 * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

struct Training {
  models::Blocks model;
  OptimizerOptions optimizer = AdamW{.learning_rate = 1e-2};
  std::string precision = "fp32";
  double ema = 0;
};

class Layouts : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder(std::size_t number) const { return (root_ / std::to_string(number)).string(); }
  static std::string bytes_of(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
  }

  // Trains `steps` steps after what is in `from` (empty: from the start) and saves into `to`.
  // Returns the loss of the last one.
  double train(const Training& training, Layout layout, const std::string& from,
               const std::string& to, int first, int steps) {
    layout.options.precision = training.precision;
    layout.options.ema = training.ema;
    layout.options.bucket_bytes = 2048;
    double loss = 0;
    testing::run_ranks(layout.ranks, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, training.model, layout.options,
                        optim::make_optimizer(training.optimizer));
      const checkpoint::Parts parts{{"train", &strategy}};
      if (!from.empty()) {
        const storage::CheckpointFolder folder(storage::local_file_system(), from);
        checkpoint::restore(parts, folder.verify(first), folder, rank.world.get());
      }
      for (int step = first; step < first + steps; ++step) {
        Batch batch{
            .total = kMicroBatches, .global_count = kMicroBatches * 4 * kBlock, .step = step};
        for (const std::uint32_t i : leaves_of(assignment, kMicroBatches, rank.rank))
          batch.micro.push_back(micro_batch(step, i));
        const double own = strategy.step(batch, token_loss()).loss;
        if (rank.rank == 0) loss = own;
      }
      save(parts, strategy.metadata(), to, first + steps, rank);
    });
    return loss;
  }

  static void save(const checkpoint::Parts& parts, const std::string& metadata,
                   const std::string& to, int step, testing::RankContext& rank) {
    checkpoint::CheckpointContent content(parts, rank.world.get());
    if (rank.rank != 0) return content.send();
    storage::CheckpointFolder folder(storage::local_file_system(), to);
    folder.write({.step = step, .parts = {{"train", metadata}}}, content.writers(), {3});
  }

  void expect_any_to_any(const Training& training, const std::vector<Layout>& layouts) {
    fs::remove_all(root_);
    std::vector<double> next;  // the loss of the step after the checkpoint
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      train(training, layouts[i], {}, folder(i), 0, 2);
      next.push_back(train(training, layouts[i], folder(i), folder(1000), 2, 1));
      fs::remove_all(folder(1000));
    }
    for (std::size_t from = 0; from < layouts.size(); ++from) {
      const std::string saved = folder(from) + "/step-00000002/";
      for (const Layout& layout : layouts) {
        const std::string where = name_of(layouts[from]) + " to " + name_of(layout);
        train(training, layout, folder(from), folder(1000), 2, 0);
        for (const char* file : {storage::kModelFile, storage::kStateFile})
          EXPECT_EQ(bytes_of(saved + file) == bytes_of(folder(1000) + "/step-00000002/" + file),
                    true)
              << file << ": " << where;
        fs::remove_all(folder(1000));
        if (from > 0 && &layout != &layouts.front()) continue;
        EXPECT_NEAR(train(training, layout, folder(from), folder(1000), 2, 1), next[from], 1e-3)
            << where;
        fs::remove_all(folder(1000));
      }
    }
  }

  const fs::path root_ = fs::temp_directory_path() / ("layouts-" + std::to_string(::getpid()));
};

models::GptConfig gpt() {
  return {.layers = 2, .heads = 4, .width = 16, .block = kBlock, .vocab = kVocab};
}

std::vector<Layout> layouts_of_all_axes() {
  return {{1, {}},
          {3, {.sync = "zero1", .shares = "2:1:5"}},
          {2, {.sync = "zero3"}},
          {4, {.sync = "hybrid", .shard = 2}},
          {2, {.pipeline = 2}},
          {4, {.sync = "zero3", .pipeline = 2, .schedule = "interleaved-1f1b", .chunks = 2}},
          {2, {.context = 2}},
          {2, {.tensor = 2}},
          {4, {.tensor = 4}},
          {4, {.sync = "zero2", .tensor = 2, .sequence = true}},
          {4, {.pipeline = 2, .tensor = 2}},
          {4, {.sync = "zero1", .context = 2}}};
}

TEST_F(Layouts, ACheckpointGoesFromAnyToAny) {
  expect_any_to_any({.model = models::make_gpt(gpt())}, layouts_of_all_axes());
}

TEST_F(Layouts, SoDoHalfPrecisionAndAverages) {
  models::GptConfig config = gpt();
  config.precision = "bf16";
  expect_any_to_any({.model = models::make_gpt(config), .precision = "bf16", .ema = 0.9},
                    {{1, {}},
                     {2, {.sync = "zero3"}},
                     {2, {.pipeline = 2}},
                     {2, {.tensor = 2}},
                     {2, {.context = 2}},
                     {4, {.sync = "zero1", .pipeline = 2}}});
}

TEST_F(Layouts, SoDoExperts) {
  models::GptConfig config = gpt();
  config.experts = 4;
  config.capacity_factor = 4;
  expect_any_to_any({.model = models::make_gpt(config)}, {{1, {}},
                                                          {2, {.expert = 2}},
                                                          {4, {.expert = 4}},
                                                          {4, {.sync = "zero3", .expert = 2}},
                                                          {4, {.sync = "zero1", .expert = 2}},
                                                          {4, {.pipeline = 2, .expert = 2}},
                                                          {4, {.expert = 2, .tensor = 2}},
                                                          {4, {.context = 2, .expert = 2}},
                                                          {2, {.tensor = 2}},
                                                          {2, {.sync = "zero2"}}});
}

// State by rows and columns of matrices, and of whole tensors.
TEST_F(Layouts, SoDoOtherOptimizers) {
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions(Adafactor{}), OptimizerOptions(Lamb{}), OptimizerOptions(Sgd{})})
    expect_any_to_any({.model = models::make_gpt(gpt()), .optimizer = optimizer},
                      {{1, {}},
                       {3, {.sync = "zero1"}},
                       {2, {.sync = "zero3"}},
                       {2, {.pipeline = 2}},
                       {2, {.context = 2}}});
}

}  // namespace
}  // namespace trireme::layouts_test
