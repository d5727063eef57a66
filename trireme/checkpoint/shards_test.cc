#include "trireme/checkpoint/shards.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/format/safetensors.h"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NamedShard whole(std::string name, const at::Tensor& tensor, DType dtype = DType::F32) {
  return {std::move(name), dtype, tensor.sizes().vec(), 0, tensor.numel(), tensor};
}

class Part final : public Saveable {
 public:
  explicit Part(std::vector<NamedShard> shards, std::string text = "{}")
      : shards_(std::move(shards)), text_(std::move(text)) {}
  std::vector<NamedShard> state() override { return shards_; }
  std::string metadata() const override { return text_; }
  void restored(const std::string& metadata) override { restored_ = metadata; }
  std::string restored_;

 private:
  std::vector<NamedShard> shards_;
  std::string text_;
};

class ShardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::path(::testing::TempDir()) / ("shards_" + std::to_string(::getpid()));
    folder_ = std::make_unique<storage::CheckpointFolder>(storage::local_file_system(),
                                                          directory_.string());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  storage::Manifest write(const Parts& parts) {
    storage::Manifest manifest{.step = ++step_};
    for (const auto& [name, part] : parts) manifest.parts[name] = part->metadata();
    CheckpointContent content(parts, nullptr);
    folder_->write(manifest, content.writers(), 3);
    return folder_->verify(step_);
  }
  std::string refusal(const Parts& saved, const Parts& wanted) {
    try {
      restore(wanted, write(saved), *folder_);
    } catch (const CheckpointError& error) {
      return error.message();
    }
    return "accepted";
  }

  std::filesystem::path directory_;
  std::unique_ptr<storage::CheckpointFolder> folder_;
  std::int64_t step_ = 0;
};

TEST_F(ShardsTest, GivesBackEveryBitOfEveryType) {
  const at::Tensor w = at::randn({2, 3}), m = at::randn({2, 3}, at::kDouble);
  const at::Tensor b = at::randn({5}).to(at::kBFloat16), n = at::tensor({3, 4}, at::kLong);
  const at::Tensor flag = at::tensor({1, 0}, at::kInt).to(at::kBool),
                   scalar = at::scalar_tensor(2.5);
  Part train({whole("w", w), whole("optimizer/w.exp_avg", m, DType::F64),
              whole("b", b, DType::BF16), whole("none", at::empty({0, 4}))},
             "train text");
  Part data({whole("n", n, DType::I64), whole("flag", flag, DType::Bool), whole("scalar", scalar)});
  const storage::Manifest manifest = write({{"train", &train}, {"data", &data}});

  Part train2({whole("w", at::zeros({2, 3})),
               whole("optimizer/w.exp_avg", at::zeros({2, 3}, at::kDouble), DType::F64),
               whole("b", at::zeros({5}, at::kBFloat16), DType::BF16),
               whole("none", at::empty({0, 4}))});
  Part data2({whole("n", at::zeros({2}, at::kLong), DType::I64),
              whole("flag", at::zeros({2}, at::kBool), DType::Bool),
              whole("scalar", at::scalar_tensor(0.0))});
  restore({{"train", &train2}, {"data", &data2}}, manifest, *folder_);
  EXPECT_TRUE(at::equal(train2.state()[0].local, w));
  EXPECT_TRUE(at::equal(train2.state()[1].local, m));
  EXPECT_TRUE(at::equal(train2.state()[2].local, b));
  EXPECT_TRUE(at::equal(data2.state()[0].local, n));
  EXPECT_TRUE(at::equal(data2.state()[1].local, flag));
  EXPECT_TRUE(at::equal(data2.state()[2].local, scalar));
  EXPECT_EQ(train2.restored_, "train text");

  const format::SafetensorsFile model(folder_->path_of(step_) + "/" + storage::kModelFile);
  EXPECT_NE(model.find("w"), nullptr);
  EXPECT_EQ(model.tensors().size(), 3u);  // only the weights, for Python
  const format::SafetensorsFile state(folder_->path_of(step_) + "/" + storage::kStateFile);
  EXPECT_NE(state.find("train/optimizer/w.exp_avg"), nullptr);
  EXPECT_NE(state.find("data/n"), nullptr);
}

// The rows of an embedding: their number is for the file to say.
TEST_F(ShardsTest, LoadsATensorOfAnotherNumberOfRowsWhole) {
  const at::Tensor rows = at::randn({3, 4});
  Part saved({whole("rows", rows)});
  at::Tensor loaded;
  const auto loading = [&](const at::Tensor& now) {
    NamedShard shard = whole("rows", now);
    shard.load = [&](const at::Tensor& tensor) { loaded = tensor; };
    return Part({shard});
  };
  for (const at::Tensor& now : {at::empty({0, 4}), at::ones({5, 4})}) {
    Part wanted = loading(now);
    restore({{"train", &wanted}}, write({{"train", &saved}}), *folder_);
    EXPECT_TRUE(at::equal(loaded, rows));
    EXPECT_TRUE(at::equal(wanted.state()[0].local, now));
  }
  Part narrow = loading(at::empty({0, 3}));
  EXPECT_THAT(refusal({{"train", &saved}}, {{"train", &narrow}}),
              AllOf(HasSubstr("F32 [3, 4]"), HasSubstr("F32 [0, 3]")));
  Part broken({whole("rows", at::full({2, 4}, std::nan("")))});
  Part wanted = loading(at::empty({0, 4}));
  EXPECT_THAT(refusal({{"train", &broken}}, {{"train", &wanted}}),
              HasSubstr("holds NaN in 8 of 8"));
}

TEST_F(ShardsTest, FillsASliceOfATensorThatWasSavedWhole) {
  const at::Tensor w = at::arange(12, at::kFloat).view({3, 4});
  Part saved({whole("w", w)});
  NamedShard slice = whole("w", at::zeros({5}));
  slice.shape = {3, 4};
  slice.begin = 3;
  slice.end = 8;
  Part wanted({slice});
  restore({{"train", &wanted}}, write({{"train", &saved}}), *folder_);
  EXPECT_TRUE(at::equal(wanted.state()[0].local, at::arange(3, 8, at::kFloat)));
}

TEST_F(ShardsTest, SaysWhatDoesNotFit) {
  Part saved({whole("w", at::zeros({2, 3})), whole("optimizer/s", at::zeros({1}))});
  Part other_shape({whole("w", at::zeros({3, 2})), whole("optimizer/s", at::zeros({1}))});
  Part more({whole("w", at::zeros({2, 3})), whole("v", at::zeros({1})),
             whole("optimizer/s", at::zeros({1}))});
  Part fewer({whole("w", at::zeros({2, 3}))});
  EXPECT_THAT(refusal({{"train", &saved}}, {{"train", &other_shape}}),
              AllOf(HasSubstr("F32 [2, 3]"), HasSubstr("F32 [3, 2] is needed")));
  EXPECT_THAT(refusal({{"train", &saved}}, {{"train", &more}}), HasSubstr("no tensor \"v\""));
  EXPECT_THAT(refusal({{"train", &saved}}, {{"train", &fewer}}),
              HasSubstr("\"train/optimizer/s\" that"));
  EXPECT_THAT(refusal({{"train", &saved}}, {{"train", &saved}, {"data", &fewer}}),
              HasSubstr("no part \"data\""));
  EXPECT_EQ(refusal({{"train", &saved}, {"data", &fewer}}, {{"train", &saved}}), "accepted");
}

TEST_F(ShardsTest, AnOptionalTensorMayBeAbsent) {
  NamedShard optional = whole("optimizer/s", at::full({1}, 7.0));
  optional.optional = true;
  Part without({whole("w", at::zeros({2}))}), wanted({whole("w", at::ones({2})), optional});
  EXPECT_EQ(refusal({{"train", &without}}, {{"train", &wanted}}), "accepted");
  EXPECT_EQ(wanted.state()[1].local.item<float>(), 7);
  Part with({whole("w", at::zeros({2})), whole("optimizer/s", at::full({1}, 3.0))});
  EXPECT_EQ(refusal({{"train", &with}}, {{"train", &wanted}}), "accepted");
  EXPECT_EQ(wanted.state()[1].local.item<float>(), 3);
}

// A part with row `rank` of `rows`, as one of so many ranks has it.
NamedShard row_of_rank(const std::string& name, const at::Tensor& rows, std::int64_t rank) {
  NamedShard shard = whole(name, rows[rank].clone());
  shard.shape = rows.sizes().vec();
  shard.begin = rank * rows.size(1);
  shard.end = (rank + 1) * rows.size(1);
  shard.optional = shard.row_of_rank = true;
  return shard;
}

// Rank r of n gets the sum of rows r, r + n, ...: on equally many ranks its own row.
TEST_F(ShardsTest, DealsOutTheRowsOfOtherRanks) {
  const at::Tensor rows = at::arange(1, 11, at::kFloat).view({5, 2});
  Part saved({whole("compression/r", rows)});
  const storage::Manifest manifest = write({{"train", &saved}});
  for (const int ranks : {1, 2, 3, 5, 7}) {
    at::Tensor sum = at::zeros({2});
    for (int rank = 0; rank < ranks; ++rank) {
      Part wanted({row_of_rank("compression/r", at::full({ranks, 2}, 99.0F), rank)});
      restore({{"train", &wanted}}, manifest, *folder_);
      const at::Tensor own = wanted.state()[0].local;
      sum += own;
      if (ranks == 5) {
        EXPECT_TRUE(own.equal(rows[rank]));
      }
      if (ranks == 2) {
        EXPECT_TRUE(own.equal(rank == 0 ? rows[0] + rows[2] + rows[4] : rows[1] + rows[3]));
      }
      if (rank >= 5) {
        EXPECT_EQ(own.abs().sum().item<float>(), 0);
      }
    }
    EXPECT_TRUE(sum.equal(rows.sum(0))) << ranks;
  }
}

TEST_F(ShardsTest, TheStateOfCompressionMayBeAbsentOrLeftOver) {
  const at::Tensor w = at::ones({2}), rows = at::ones({3, 2});
  Part with({whole("w", w), whole("compression/r", rows)}), without({whole("w", w)});
  Part wanted({whole("w", w), row_of_rank("compression/r", at::zeros({2, 2}), 1)});
  EXPECT_EQ(refusal({{"train", &with}}, {{"train", &without}}), "accepted");
  EXPECT_EQ(refusal({{"train", &without}}, {{"train", &wanted}}), "accepted");
  EXPECT_EQ(wanted.state()[1].local.sum().item<float>(), 0);
  Part wider({whole("w", w), row_of_rank("compression/r", at::zeros({2, 3}), 1)});
  EXPECT_THAT(refusal({{"train", &with}}, {{"train", &wider}}),
              AllOf(HasSubstr("F32 [3, 2]"), HasSubstr("F32 [2, 3] is needed")));
}

// The error names the optimizers, not the first tensor that is missing.
TEST_F(ShardsTest, TheStateOfAnotherOptimizerIsNamed) {
  Part saved({whole("w", at::zeros({2})), whole("optimizer/w.exp_avg", at::zeros({2}))},
             R"({"optimizer": "adamw"})");
  Part wanted({whole("w", at::ones({2})), whole("optimizer/w.momentum", at::zeros({2}))},
              R"({"optimizer": "sgd"})");
  EXPECT_EQ(refusal({{"train", &saved}}, {{"train", &wanted}}),
            "the checkpoint holds the state of the optimizer adamw, and this run has sgd");
  EXPECT_TRUE(at::equal(wanted.state()[0].local, at::ones({2}))) << "nothing was filled";
}

TEST_F(ShardsTest, ATensorThatNoRankHasWhollyIsRefused) {
  NamedShard slice = whole("w", at::zeros({5}));
  slice.shape = {3, 4};
  slice.end = 5;
  Part part({slice});
  EXPECT_THROW(CheckpointContent({{"train", &part}}, nullptr), CheckpointError);
}

// As of a tensor that ranks cut by columns: one shard per row.
TEST_F(ShardsTest, VeryManyShardsOfATensorAreFoundAtOnce) {
  constexpr std::int64_t kMany = 200'000;
  const at::Tensor all = at::arange(kMany, at::kFloat);
  std::vector<NamedShard> shards;
  for (std::int64_t i = 0; i < kMany; ++i)
    shards.push_back({"w", DType::F32, {kMany}, i, i + 1, all.narrow(0, i, 1)});
  Part part(std::move(shards));
  CheckpointContent content({{"train", &part}}, nullptr);
  EXPECT_EQ(content.snapshot(), kMany * 4);
}

}  // namespace
}  // namespace trireme::checkpoint
