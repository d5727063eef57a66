// golden/ has one checkpoint per manifest version. This version and the previous one must be
// readable for ever, and today's output must equal the golden file of today's version, byte for
// byte, so that a format cannot change without a new version.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/checkpoint/shards.h"
#include "trireme/format/safetensors.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

class Part final : public Saveable {
 public:
  Part(std::vector<std::pair<std::string, at::Tensor>> tensors, std::string text)
      : tensors_(std::move(tensors)), text_(std::move(text)) {}
  std::vector<NamedShard> state() override {
    std::vector<NamedShard> shards;
    for (const auto& [name, tensor] : tensors_) {
      const DType dtype = tensor.scalar_type() == at::kFloat ? DType::F32 : DType::I64;
      shards.push_back({name, dtype, tensor.sizes().vec(), 0, tensor.numel(), tensor});
    }
    return shards;
  }
  std::string metadata() const override { return text_; }
  void restored(const std::string& text) override { restored_ = text; }

  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::string text_, restored_;
};

Part golden_train(double scale) {
  return Part({{"embed.weight", at::arange(6, at::kFloat).view({2, 3}) * scale},
               {"head.bias", at::full({2}, -0.5 * scale, at::kFloat)},
               {"optimizer/embed.weight.exp_avg", at::full({2, 3}, 0.25 * scale, at::kFloat)}},
              R"({"step":7})");
}
Part golden_data(std::int64_t scale) {
  return Part({{"seen", at::arange(3, at::kLong) * scale}}, R"({"position":7})");
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Golden, EveryVersionCanBeRead) {
  for (std::int64_t version = std::max<std::int64_t>(1, storage::kManifestVersion - 1);
       version <= storage::kManifestVersion; ++version) {
    SCOPED_TRACE(version);
    const fs::path directory = fs::path(TRIREME_GOLDEN) / ("v" + std::to_string(version));
    const storage::CheckpointFolder folder(storage::local_file_system(), directory.string());
    const storage::Manifest manifest = folder.verify(7);
    EXPECT_EQ(manifest.version, version);
    EXPECT_EQ(manifest.identity, "golden");
    Part train = golden_train(0), data = golden_data(0);
    restore({{"train", &train}, {"data", &data}}, manifest, folder);
    Part expected_train = golden_train(1), expected_data = golden_data(1);
    for (std::size_t i = 0; i < train.tensors_.size(); ++i) {
      EXPECT_TRUE(at::equal(train.tensors_[i].second, expected_train.tensors_[i].second)) << i;
    }
    EXPECT_TRUE(at::equal(data.tensors_[0].second, expected_data.tensors_[0].second));
    EXPECT_EQ(train.restored_, R"({"step":7})");
    EXPECT_EQ(data.restored_, R"({"position":7})");
  }
}

TEST(Golden, WhatIsWrittenTodayIsTodaysGoldenFile) {
  const fs::path written =
      fs::path(::testing::TempDir()) / ("golden_" + std::to_string(::getpid()));
  fs::remove_all(written);
  storage::CheckpointFolder folder(storage::local_file_system(), written.string());
  Part train = golden_train(1), data = golden_data(1);
  CheckpointContent content({{"train", &train}, {"data", &data}}, nullptr);
  folder.write({.step = 7,
                .identity = "golden",
                .parts = {{"train", train.metadata()}, {"data", data.metadata()}}},
               content.writers(), 1);
  const fs::path golden =
      fs::path(TRIREME_GOLDEN) / ("v" + std::to_string(storage::kManifestVersion));
  for (const char* name : {storage::kModelFile, storage::kStateFile, "manifest.json"}) {
    const fs::path file = fs::path("step-00000007") / name;
    EXPECT_TRUE(read(written / file) == read(golden / file))
        << file << " differs: a changed format needs a new kManifestVersion and its golden folder "
        << "(written: " << written << ")";
  }
  if (!HasFailure()) fs::remove_all(written);
}

}  // namespace
}  // namespace trireme::checkpoint
