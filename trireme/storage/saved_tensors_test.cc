#include "trireme/storage/saved_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/format/safetensors.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/forwarding_file_system_test.h"

namespace trireme::storage {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Slices, RowsOfATensorAreOneRun) {
  Slices slices{.shape = {100, 8}};
  for (std::int64_t row = 0; row < 100; ++row) slices.add(row * 8 + 2, row * 8 + 4);
  ASSERT_EQ(slices.runs.size(), 1u);
  EXPECT_EQ(slices.runs[0].stride, 8);
  EXPECT_EQ(slices.runs[0].count, 100);
  slices = {.shape = {10}};
  for (std::int64_t i = 0; i < 10; ++i) slices.add(i, i + 1);
  ASSERT_EQ(slices.runs.size(), 1u) << "neighbours are joined";
  EXPECT_EQ(slices.runs[0].length, 10);
}

TEST(Run, TakesRowsOfOneLengthAtOneDistance) {
  storage::Run run{.begin = 2, .length = 3};
  EXPECT_FALSE(run.take(7, 9)) << "shorter";
  EXPECT_TRUE(run.take(5, 8)) << "a neighbour is a row of its own";
  EXPECT_TRUE(run.take(8, 11));
  EXPECT_FALSE(run.take(12, 15)) << "further away";
  EXPECT_EQ(run.stride, 3);
  EXPECT_EQ(run.count, 3);
}

// Counts the bytes that are read.
class CountingFiles final : public ForwardingFileSystem {
 public:
  std::unique_ptr<InputFile> open(const std::string& path) override {
    struct Counted final : InputFile {
      std::int64_t size() const noexcept override { return file->size(); }
      void read(std::int64_t at, std::span<std::byte> to) override {
        bytes += static_cast<std::int64_t>(to.size());
        file->read(at, to);
      }
      Counted(std::unique_ptr<InputFile> given, std::int64_t& sum)
          : file(std::move(given)), bytes(sum) {}
      const std::unique_ptr<InputFile> file;
      std::int64_t& bytes;
    };
    return std::make_unique<Counted>(ForwardingFileSystem::open(path), bytes);
  }

  std::int64_t bytes = 0;
};

// Rank 0 has columns 0 and 1 of a [50, 3] tensor, rank 1 column 2 and a whole tensor.
class SavedTensorsTest : public ::testing::Test {
 protected:
  SavedTensorsTest() : folder_(local_file_system(), directory_.string()) {
    fs::remove_all(directory_);
    for (std::int64_t row = 0; row < 50; ++row) {
      left_.add(row * 3, row * 3 + 2);
      right_.add(row * 3 + 2, row * 3 + 3);
      for (const int column : {0, 1}) left_values_.push_back(static_cast<float>(row * 3 + column));
      right_values_.push_back(static_cast<float>(row * 3 + 2));
    }
  }
  ~SavedTensorsTest() override { fs::remove_all(directory_); }

  static format::TensorView view(const std::string& name, const std::vector<float>& values) {
    return {name,
            DType::F32,
            {static_cast<std::int64_t>(values.size())},
            std::as_bytes(std::span(values))};
  }
  static FileWriter writer(std::vector<format::TensorView> views,
                           std::map<std::string, std::string> metadata) {
    return [views = std::move(views), metadata = std::move(metadata)](const auto& sink) {
      format::write_safetensors(views, metadata, sink);
    };
  }
  Manifest write() {
    folder_.write({.step = ++step_, .chunk_bytes = 64},
                  {{kModelFile, writer({view("w", left_values_)}, metadata_of({{"w", left_}}))},
                   {file_of(kModelFile, 1), writer({view("w", right_values_), view("v", {7, 8})},
                                                   metadata_of({{"w", right_}}))},
                   {kStateFile, writer({}, {})}},
                  2);
    return folder_.look(step_);
  }
  std::string refusal() {
    try {
      SavedTensors(folder_, write());
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "accepted";
  }

  const fs::path directory_ =
      fs::path(::testing::TempDir()) / ("saved_tensors_" + std::to_string(::getpid()));
  CheckpointFolder folder_;
  std::int64_t step_ = 4;
  Slices left_{.shape = {50, 3}}, right_{.shape = {50, 3}};
  std::vector<float> left_values_, right_values_;
};

TEST_F(SavedTensorsTest, AnyRangeOfATensorComesFromAllFiles) {
  SavedTensors saved(folder_, write());
  ASSERT_EQ(saved.tensors(kModelFile).size(), 2u);
  const auto* w = saved.find(kModelFile, "w");
  EXPECT_EQ(w->shape, (std::vector<std::int64_t>{50, 3}));
  for (std::int64_t begin = 0; begin < 150; begin += 13) {
    for (std::int64_t end = begin; end <= 150; end += 7) {
      std::vector<float> got(static_cast<std::size_t>(end - begin));
      saved.read({{w, begin, std::as_writable_bytes(std::span(got))}});
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], static_cast<float>(begin) + static_cast<float>(i));
    }
  }
  std::vector<float> v(2);
  saved.read({{saved.find(kModelFile, "v"), 0, std::as_writable_bytes(std::span(v))}});
  EXPECT_EQ(v, (std::vector<float>{7, 8}));
  EXPECT_EQ(saved.find(kModelFile, "u"), nullptr);
}

TEST_F(SavedTensorsTest, DamageNamesTheFileTheBytesAndAnOlderStep) {
  folder_.write({.step = 4}, {{kModelFile, writer({}, {})}, {kStateFile, writer({}, {})}}, 2);
  const Manifest manifest = write();
  const fs::path file = directory_ / "step-00000005" / "model-1.safetensors";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('x');
  SavedTensors saved(folder_, manifest);
  try {
    saved.read(*saved.find(kModelFile, "w"));
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string() + " was changed: the XXH3 of its bytes"));
    EXPECT_THAT(error.what(), HasSubstr("Step 4 is intact"));
  }
}

TEST_F(SavedTensorsTest, ACheckpointThatIsRemovedMeanwhileIsNotDamaged) {
  SavedTensors saved(folder_, write());
  folder_.remove(step_);
  try {
    saved.read(*saved.find(kModelFile, "w"));
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_.path_of(step_) + " was removed while it was read"));
    EXPECT_THAT(error.what(), HasSubstr("read a newer one"));
  }
}

TEST_F(SavedTensorsTest, SlicesThatDoNotFitAreRefused) {
  right_.runs[0].count = 49;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"w\""), HasSubstr("another number of elements")));
  right_.runs[0] = {2, 0, 0, 50};
  EXPECT_THAT(refusal(), HasSubstr("outside of its shape"));
  right_.runs[0] = {4, 1, 3, 50};
  EXPECT_THAT(refusal(), HasSubstr("outside of its shape"));
  right_.runs = left_.runs;
  right_values_ = left_values_;
  EXPECT_THAT(refusal(), HasSubstr("has 200 of 150 elements"));
  right_.runs[0] = {1, 1, 3, 50};
  right_values_.resize(50);
  EXPECT_THAT(refusal(), HasSubstr("has an element in two places"));
  right_.shape = {150};
  EXPECT_THAT(refusal(), HasSubstr("another type or shape"));
  // The bytes of so many elements are 0 of 64 bits.
  const std::int64_t many = std::int64_t{1} << 62;
  left_ = {.shape = {many}, .runs = {{0, many, 0, 1}}};
  right_ = {.shape = {many}, .runs = {{0, 0, 0, 1}}};
  left_values_ = right_values_ = {};
  EXPECT_THAT(refusal(), HasSubstr("its list of tensor slices (\"slices\") is damaged"));
}

// Each rank needs to know what is in all files, and reads its own tensor.
TEST_F(SavedTensorsTest, OfTheFilesThatARankDoesNotNeedItReadsTheHeadersAlone) {
  constexpr int kRanks = 4;
  const std::vector<float> values(25'000, 1.0F);
  std::map<std::string, FileWriter> files{{kStateFile, writer({}, {})}};
  for (int rank = 0; rank < kRanks; ++rank)
    files.emplace(file_of(kModelFile, rank),
                  writer({view("w" + std::to_string(rank), values)}, {{"format", "pt"}}));
  folder_.write({.step = 9}, files, 2);
  std::int64_t headers = -kRanks * 100'000;
  for (const auto& [name, record] : folder_.look(9).files) headers += record.bytes;
  const auto counting = std::make_shared<CountingFiles>();
  const CheckpointFolder folder(counting, directory_.string());
  for (int rank = 0; rank < kRanks; ++rank) {
    const Manifest manifest = folder.read_manifest(9);
    const std::int64_t before = counting->bytes;
    SavedTensors saved(folder, manifest);
    EXPECT_EQ(counting->bytes - before, headers);
    saved.read(*saved.find(kModelFile, "w" + std::to_string(rank)));
    EXPECT_EQ(counting->bytes - before, headers + 100'000);
  }
}

// A job of many ranks saves more files than `ulimit -n` often allows.
TEST_F(SavedTensorsTest, TheFilesMayBeMoreThanAProcessMayHaveOpen) {
  constexpr int kRanks = 80;
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < kRanks; ++rank) values.push_back({static_cast<float>(rank)});
  std::map<std::string, FileWriter> files{{kStateFile, writer({}, {})}};
  for (int rank = 0; rank < kRanks; ++rank)
    files.emplace(file_of(kModelFile, rank),
                  writer({view("w" + std::to_string(rank), values[static_cast<std::size_t>(rank)])},
                         {{"format", "pt"}}));
  folder_.write({.step = 9}, files, 2);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_NO_THROW({
    SavedTensors saved(folder_, folder_.read_manifest(9));
    for (int round = 0; round < 2; ++round) {
      for (int rank = 0; rank < kRanks; ++rank) {
        float value = -1;
        saved.read({{saved.find(kModelFile, "w" + std::to_string(rank)), 0,
                     std::as_writable_bytes(std::span(&value, 1))}});
        EXPECT_EQ(value, static_cast<float>(rank));
      }
    }
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace trireme::storage
