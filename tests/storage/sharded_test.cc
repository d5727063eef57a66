// Two ranks with half of a tensor each, whose storage fails, comes back, or loses a rank in the
// middle of a save.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/job.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/forwarding_file_system_test.h"
#include "trireme/storage/saved_tensors.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using storage::OutputFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ProcessRun;

constexpr std::int64_t kElements = 100'000;

// Files of one name cannot be made: the first ones, or none.
class Broken final : public storage::ForwardingFileSystem {
 public:
  Broken(int failures, std::string name) : left_(failures), name_(std::move(name)) {}
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    if (left_ != 0 && path.ends_with(name_)) {
      if (left_ > 0) --left_;
      throw ResourceError("the disk is full", {.operation = "test"});
    }
    return ForwardingFileSystem::create(path);
  }

 private:
  std::atomic<int> left_;
  const std::string name_;
};

// The weights are the number of steps done; each rank has a half of them.
class Half final : public Saveable {
 public:
  explicit Half(int rank) : begin_(rank * kElements / 2) {}
  std::vector<NamedShard> state() override {
    return {{"w", DType::F32, {kElements}, begin_, begin_ + kElements / 2, weight}};
  }
  std::string metadata() const override { return "{}"; }
  void restored(const std::string&) override {}
  at::Tensor weight = at::zeros({kElements / 2});

 private:
  const std::int64_t begin_;
};

// Settings of the process `halves`, which gets them as arguments after the folder.
struct Halves {
  int failures = 0;       // -1: for ever
  int patience = 600000;  // milliseconds
  long steps = 30;
  long dies = 0;       // the step after which rank 1 dies
  bool share = false;  // both ranks write files
  std::string breaks = storage::kStateFile;
  std::string beside = "";  // of the folder: rank 1's own one, which rank 0 does not see
  std::vector<std::string> arguments() const {
    return {std::to_string(failures),
            std::to_string(patience),
            std::to_string(steps),
            std::to_string(dies),
            std::to_string(share),
            breaks,
            beside};
  }
};

TRIREME_PROCESS(halves) {
  Job job(argc, argv);
  CheckpointerOptions options{.every = 3, .keep = 100};
  options.storage = storage::folder_storage(std::make_shared<Broken>(std::atoi(argv[2]), argv[7]));
  if (std::atoi(argv[6]) != 0) options.own_file_bytes = 1;
  options.patience = std::chrono::milliseconds(std::atoi(argv[3]));
  Half half(job.rank());
  Checkpointer checkpointer(job, std::string(argv[1]) + (job.rank() == 1 ? argv[8] : ""), options);
  checkpointer.add("train", half);
  const long first = checkpointer.resume(), steps = std::atol(argv[4]), dies = std::atol(argv[5]);
  if (first > 0 && half.weight.eq(static_cast<double>(first)).all().item<bool>())
    std::printf("resumed at %ld\n", first);
  for (long step = first; step < steps; ++step) {
    std::vector<float> x{1.0f};
    all_reduce(job.world(), x, Sum);  // while the save before is under way
    half.weight.fill_(static_cast<double>(step + 1));
    checkpointer.after(step);
    if (step + 1 == dies && job.rank() == 1) ::raise(SIGKILL);
  }
  checkpointer.save_and_wait(steps);
  std::printf("done\n");
  return 0;
}

class Sharded : public ::testing::Test {
 protected:
  Sharded() { fs::remove_all(folder_); }
  ~Sharded() override {
    fs::remove_all(folder_);
    fs::remove_all(folder_.string() + "_elsewhere");
  }
  ProcessRun run(const Halves& halves, const std::string& transport = "auto") const {
    testing::ProcessOptions options;
    options.transport = transport;
    options.arguments = halves.arguments();
    options.arguments.insert(options.arguments.begin(), folder_.string());
    return testing::run_processes(2, "halves", options);
  }
  std::vector<std::int64_t> intact() const {
    const storage::CheckpointFolder folder(storage::local_file_system(), folder_.string());
    for (const std::int64_t step : folder.steps()) {
      folder.verify(step);
      storage::SavedTensors saved(folder, folder.look(step));
      const auto bytes = saved.read(*saved.find(storage::kModelFile, "w"));
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      for (const std::int64_t i :
           {std::int64_t{0}, kElements / 2 - 1, kElements / 2, kElements - 1})
        EXPECT_EQ(values[i], static_cast<float>(step)) << "element " << i;
    }
    return folder.steps();
  }
  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("sharded_" + std::to_string(::getpid()));
};

TEST_F(Sharded, EverySaveHasTheShardsOfItsStep) {
  for (const bool share : {false, true}) {
    for (const std::string transport : {"auto", "tcp"}) {
      fs::remove_all(folder_);
      const ProcessRun done = run({.share = share}, transport);
      ASSERT_EQ(done.exit_code, 0) << done.describe();
      EXPECT_THAT(intact(), ElementsAre(3, 6, 9, 12, 15, 18, 21, 24, 27, 30));
    }
    EXPECT_EQ(fs::exists(folder_ / "step-00000030" / "model-1.safetensors"), share);
    EXPECT_FALSE(fs::exists(folder_ / ".writers"));
    const ProcessRun again = run({.share = share});
    ASSERT_EQ(again.exit_code, 0) << again.describe();
    for (const auto& rank : again.ranks) EXPECT_THAT(rank.out, HasSubstr("resumed at 30"));
  }
}

TEST_F(Sharded, ARankThatDoesNotSeeTheFolderSendsItsShards) {
  const ProcessRun done = run({.steps = 4, .share = true, .beside = "_elsewhere"});
  ASSERT_EQ(done.exit_code, 0) << done.describe();
  EXPECT_THAT(intact(), ElementsAre(3, 4));
  EXPECT_FALSE(fs::exists(folder_ / "step-00000004" / "model-1.safetensors"));
  EXPECT_THAT(done.ranks[0].err, HasSubstr("rank 0 writes the shards of ranks that do not see " +
                                           folder_.string() + ": 1"));
}

// All ranks try again.
TEST_F(Sharded, AStorageThatComesBackHasTheLastStep) {
  for (const bool other : {false, true}) {
    fs::remove_all(folder_);
    Halves halves{.failures = 2, .steps = 4, .share = other};
    if (other) halves.breaks = "model-1.safetensors";
    const ProcessRun done = run(halves);
    ASSERT_EQ(done.exit_code, 0) << done.describe();
    const auto steps = intact();
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(steps.back(), 4);
    EXPECT_THAT(done.ranks[0].err, HasSubstr(other ? "is not saved: rank 1: the disk is full"
                                                   : "is not saved: the disk is full"));
    EXPECT_THAT(done.ranks[0].err, HasSubstr("is saved; the storage had failed for"));
  }
}

TEST_F(Sharded, WhenThePatienceIsOverAllRanksEndWith170) {
  for (const bool other : {false, true}) {
    Halves halves{.failures = -1, .patience = 1500, .steps = 1'000'000'000, .share = other};
    if (other) halves.breaks = "model-1.safetensors";
    const ProcessRun done = run(halves);
    EXPECT_EQ(done.exit_code, 170) << done.describe();
    EXPECT_THAT(done.last_line, HasSubstr("the disk is full"));
    EXPECT_THAT(intact(), IsEmpty());
  }
}

// At any moment of a save: what there is is whole, and nobody hangs.
TEST_F(Sharded, ARankThatDiesDuringASaveLeavesCompleteCheckpoints) {
  for (const bool share : {false, true}) {
    for (const long dies : {3, 4, 6, 7}) {
      const ProcessRun done = run({.dies = dies, .share = share});
      EXPECT_EQ(done.exit_code, 137) << done.describe();
      intact();
    }
    const ProcessRun done = run({.share = share});
    ASSERT_EQ(done.exit_code, 0) << done.describe();
    EXPECT_EQ(intact().back(), 30);
    fs::remove_all(folder_);
  }
}

}  // namespace
}  // namespace trireme
