// Ranks that write files of their own: simulated ranks with a real folder, and two writers whose
// machine loses its power.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/checkpoint/background_save.h"
#include "trireme/checkpoint/kept_state.h"
#include "trireme/checkpoint/moves.h"
#include "trireme/storage/faulty_file_system_test.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RankContext;

constexpr std::int64_t kRows = 40, kColumns = 12;

// "w" in columns, "m" in rows, "all" on every rank, "mine" on the last rank alone.
class Sliced final : public Saveable {
 public:
  Sliced(int rank, int ranks, float scale) : rank_(rank), ranks_(ranks) {
    const std::int64_t width = kColumns / ranks, first = rank * width;
    for (std::int64_t row = 0; row < kRows; ++row)
      add("w", row * kColumns + first, row * kColumns + first + width, scale);
    const std::int64_t rows = kRows / ranks * kColumns;
    add("optimizer/m", rank * rows, rank + 1 == ranks ? kRows * kColumns : (rank + 1) * rows,
        scale);
    add("all", 0, kRows * kColumns, scale);
    if (rank + 1 == ranks) add("mine", 0, kRows * kColumns, scale);
  }
  std::vector<NamedShard> state() override { return shards_; }
  std::string metadata() const override { return "{}"; }
  void restored(const std::string&) override {}
  bool is_whole() const {
    return std::all_of(shards_.begin(), shards_.end(), [](const NamedShard& shard) {
      return at::equal(shard.local, at::arange(shard.begin, shard.end, at::kFloat));
    });
  }

 private:
  void add(const std::string& name, std::int64_t begin, std::int64_t end, float scale) {
    shards_.push_back({name,
                       DType::F32,
                       {kRows, kColumns},
                       begin,
                       end,
                       at::arange(begin, end, at::kFloat) * scale});
  }
  const int rank_, ranks_;
  std::vector<NamedShard> shards_;
};

class Fixed final : public Saveable {
 public:
  explicit Fixed(std::vector<NamedShard> given) : shards(std::move(given)) {}
  std::vector<NamedShard> state() override { return shards; }
  std::string metadata() const override { return "{}"; }
  void restored(const std::string&) override {}
  std::vector<NamedShard> shards;
};

class SharingTest : public ::testing::Test {
 protected:
  SharingTest() { fs::remove_all(directory_); }
  ~SharingTest() override { fs::remove_all(directory_); }

  storage::CheckpointFolder folder(
      std::shared_ptr<storage::FileSystem> files = storage::local_file_system()) const {
    storage::CheckpointFolder folder(std::move(files), directory_.string());
    folder.set_mark("thesameofallrank");  // Reach tells it
    return folder;
  }
  // Saves on simulated ranks. `files` of a rank: its file system.
  void save(
      int ranks, std::int64_t step, const std::vector<bool>& sees, std::size_t least,
      const std::function<std::shared_ptr<storage::FileSystem>(int)>& files = [](int) {
        return storage::local_file_system();
      }) {
    testing::run_ranks(ranks, [&](RankContext& rank) {
      Sliced part(rank.rank, ranks, scale_);
      auto content = std::make_unique<CheckpointContent>(Parts{{"train", &part}}, rank.world.get());
      Reach reach(least, sees);
      Outage outage(std::chrono::minutes(10));
      BackgroundSave saving(std::move(content),
                            {.step = step, .chunk_bytes = 256, .parts = {{"train", "{}"}}},
                            folder(files(rank.rank)), {9}, rank.rank, outage, reach, rank.waiter);
      saving.run_here();
      if (rank.rank != 0) return;
      if (saving.error()) std::rethrow_exception(saving.error());
      if (saving.failure()) failures_.push_back(describe(saving.failure()).sentence);
    });
  }
  void expect_loads_on(int ranks, std::int64_t step) {
    testing::run_ranks(ranks, [&](RankContext& rank) {
      Sliced part(rank.rank, ranks, 0);
      restore({{"train", &part}}, folder().look(step), folder(), rank.world.get());
      EXPECT_TRUE(part.is_whole()) << rank.rank << " of " << ranks;
    });
  }
  std::vector<std::string> names(std::int64_t step) const {
    return storage::local_file_system()->list(folder().path_of(step));
  }

  const fs::path directory_ =
      fs::path(::testing::TempDir()) / ("sharing_" + std::to_string(::getpid()));
  std::vector<std::string> failures_;
  float scale_ = 1;  // of what is saved
};

TEST_F(SharingTest, EveryRankWritesItsShardsAndAnyNumberOfRanksLoadsThem) {
  for (const int ranks : {1, 2, 3}) {
    save(ranks, ranks, std::vector<bool>(static_cast<std::size_t>(ranks), true), 1);
    folder().verify(ranks);
    for (const int loading : {1, 2, 3, 4}) expect_loads_on(loading, ranks);
  }
  EXPECT_THAT(names(1), ElementsAre("manifest.json", "model.safetensors", "state.safetensors"));
  EXPECT_THAT(names(3), ElementsAre("manifest.json", "model-1.safetensors", "model-2.safetensors",
                                    "model.safetensors", "state-1.safetensors",
                                    "state-2.safetensors", "state.safetensors"));
}

TEST_F(SharingTest, SmallSharesAndRanksThatDoNotSeeTheStorageGoThroughRankZero) {
  save(3, 1, {true, true, true}, 1 << 20);
  EXPECT_THAT(names(1), ElementsAre("manifest.json", "model.safetensors", "state.safetensors"));
  save(3, 2, {true, false, true}, 1);
  EXPECT_THAT(names(2), ElementsAre("manifest.json", "model-2.safetensors", "model.safetensors",
                                    "state-2.safetensors", "state.safetensors"));
  for (const int loading : {1, 3})
    for (const std::int64_t step : {1, 2}) expect_loads_on(loading, step);
}

TEST_F(SharingTest, AFullDiskOfAnyRankGivesTheSaveUpOnAll) {
  scale_ = 2;  // so that no file of step 2 is one of step 1
  save(2, 1, {true, true}, 1);
  scale_ = 1;
  for (const int full : {0, 1}) {
    for (int fail_at = 0; fail_at < 8; ++fail_at) {
      failures_.clear();
      save(2, 2, {true, true}, 1, [&](int rank) -> std::shared_ptr<storage::FileSystem> {
        if (rank != full) return storage::local_file_system();
        return std::make_shared<storage::FaultyFileSystem>(
            storage::FaultyFileSystem::Fault::DiskFull, fail_at);
      });
      SCOPED_TRACE(std::to_string(full) + ", " + std::to_string(fail_at));
      ASSERT_EQ(failures_.size(), 1u);
      EXPECT_THAT(failures_[0],
                  HasSubstr(full == 1 ? "rank 1: the disk is full" : "the disk is full"));
      EXPECT_THAT(storage::local_file_system()->list(directory_.string()),
                  ElementsAre("latest", "step-00000001"));
    }
  }
  save(2, 2, {true, true}, 1);
  expect_loads_on(2, 2);
}

TEST_F(SharingTest, ADamagedChunkIsNamedByTheRankThatReadsIt) {
  scale_ = 2;  // so that no file of step 2 is one of step 1
  save(2, 1, {true, true}, 1);
  scale_ = 1;
  save(2, 2, {true, true}, 1);
  const fs::path file = directory_ / "step-00000002" / "state-1.safetensors";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('x');
  testing::run_ranks(2, [&](RankContext& rank) {
    Sliced part(rank.rank, 2, 0);
    const auto load = [&] {
      restore({{"train", &part}}, folder().look(2), folder(), rank.world.get());
    };
    if (rank.rank == 0) {
      load();
      EXPECT_TRUE(part.is_whole()) << "it does not need what is damaged";
      return;
    }
    try {
      load();
      ADD_FAILURE();
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr(file.string() + " was changed"), HasSubstr("XXH3 of its bytes"),
                        HasSubstr("Step 1 is intact")));
    }
  });
}

TEST_F(SharingTest, FrozenWeightsAreWrittenOnce) {
  const auto write = [&](std::int64_t step, float value) {
    const at::Tensor frozen = at::arange(1000, at::kFloat), trained = at::full({1000}, value);
    Fixed part({{"frozen", DType::F32, {1000}, 0, 1000, frozen},
                {"trained", DType::F32, {1000}, 0, 1000, trained}});
    part.shards[0].frozen = true;
    CheckpointContent content({{"train", &part}}, nullptr);
    content.split_frozen(4000);
    return folder().write({.step = step, .chunk_bytes = 256, .parts = {{"train", "{}"}}},
                          content.writers(), 2);
  };
  EXPECT_EQ(write(1, 1).kept_bytes, 0);
  const storage::SaveReport second = write(2, 2);
  EXPECT_THAT(names(2), ElementsAre("manifest.json", "model-frozen.safetensors",
                                    "model.safetensors", "state.safetensors"));
  const fs::path kept = fs::path(folder().path_of(2)) / "model-frozen.safetensors";
  EXPECT_EQ(second.kept_bytes, static_cast<std::int64_t>(fs::file_size(kept)));
  EXPECT_GT(second.written_bytes, 4000);
  EXPECT_EQ(fs::hard_link_count(kept), 2u);
  EXPECT_EQ(write(3, 3).kept_bytes, second.kept_bytes);
  EXPECT_EQ(fs::hard_link_count(kept), 2u) << "the first checkpoint is gone, and its file stays";
  Fixed loaded({{"frozen", DType::F32, {1000}, 0, 1000, at::zeros(1000)},
                {"trained", DType::F32, {1000}, 0, 1000, at::zeros(1000)}});
  restore({{"train", &loaded}}, folder().verify(3), folder());
  EXPECT_TRUE(at::equal(loaded.shards[0].local, at::arange(1000, at::kFloat)));
  EXPECT_TRUE(at::equal(loaded.shards[1].local, at::full({1000}, 3.0f)));
}

// Another rank on the same machine, between start() and finish().
class SecondWriter final : public storage::OtherWriters {
 public:
  SecondWriter(storage::CheckpointFolder folder, storage::Manifest manifest,
               std::map<std::string, storage::FileWriter> files)
      : folder_(std::move(folder)), manifest_(std::move(manifest)), files_(std::move(files)) {}
  void start() override { written_ = folder_.write_files(manifest_, files_); }
  storage::WrittenFiles finish() override { return written_; }

 private:
  storage::CheckpointFolder folder_;
  const storage::Manifest manifest_;
  const std::map<std::string, storage::FileWriter> files_;
  storage::WrittenFiles written_;
};

// Cuts the power at every operation of both writers.
TEST_F(SharingTest, ACrashOfTwoWritersLeavesACompleteCheckpoint) {
  const auto write = [&](const std::shared_ptr<storage::FileSystem>& files, std::int64_t step) {
    const auto of = [step](const std::string& name) -> storage::FileWriter {
      return [text = name + std::to_string(step)](const auto& sink) {
        sink(std::as_bytes(std::span(text)));
        sink(std::as_bytes(std::span(text)));
      };
    };
    const storage::Manifest manifest{.step = step, .chunk_bytes = 20};
    const storage::FileWriter same = [](const auto& sink) {
      const std::string text = "the same at every step";
      sink(std::as_bytes(std::span(text)));
    };
    SecondWriter second(folder(files), manifest,
                        {{"model-1.safetensors", of("model 1 ")}, {"state-1.safetensors", same}});
    folder(files).write(
        manifest, {{storage::kModelFile, of("model ")}, {storage::kStateFile, same}}, 1, &second);
  };
  write(storage::local_file_system(), 5);
  const auto counting = std::make_shared<storage::FaultyFileSystem>();
  write(counting, 10);
  const int acts = counting->num_acts();
  ASSERT_GT(acts, 20);
  for (const auto loss :
       {storage::FaultyFileSystem::Loss::All, storage::FaultyFileSystem::Loss::Ends,
        storage::FaultyFileSystem::Loss::Some}) {
    int saw_old = 0, saw_new = 0;
    for (int fail_at = 0; fail_at < acts; ++fail_at) {
      SCOPED_TRACE(fail_at + 1000 * static_cast<int>(loss));
      fs::remove_all(directory_);
      write(storage::local_file_system(), 5);
      const auto crashing = std::make_shared<storage::FaultyFileSystem>(
          storage::FaultyFileSystem::Fault::Crash, fail_at, directory_.string(), loss);
      EXPECT_THROW(write(crashing, 10), storage::Crashed);
      const auto steps = folder().steps();
      ASSERT_THAT(steps, ::testing::Not(IsEmpty()));
      for (const std::int64_t step : steps) folder().verify(step);
      ++(steps.back() == 10 ? saw_new : saw_old);
      write(storage::local_file_system(), 15);
      EXPECT_THAT(storage::local_file_system()->list(directory_.string()),
                  ElementsAre("latest", "step-00000015"));
    }
    EXPECT_GT(saw_old, 0);
    EXPECT_GT(saw_new, 0);
  }
}

TEST_F(SharingTest, WhyASaveFailedComesBeforeTheLossOfARank) {
  testing::run_ranks(2, [&](RankContext& rank) {
    Sliced part(rank.rank, 2, scale_);
    auto content = std::make_unique<CheckpointContent>(Parts{{"train", &part}}, rank.world.get());
    if (rank.rank == 1) return;  // it ends
    EXPECT_THROW(rank.world->barrier().wait(), PeerLost);
    Reach reach(1, std::vector<bool>{true, true});
    Outage outage(Duration::zero());
    const auto full =
        std::make_shared<storage::FaultyFileSystem>(storage::FaultyFileSystem::Fault::DiskFull, 0);
    BackgroundSave saving(std::move(content), {.step = 1, .parts = {{"train", "{}"}}}, folder(full),
                          {9}, rank.rank, outage, reach, rank.waiter);
    saving.run_here();
    ASSERT_TRUE(saving.error());
    EXPECT_THAT(describe(saving.error()).sentence, HasSubstr("the disk is full"));
  });
}

// As weights in channels_last are: whole on every rank, and loaded by a function of their own.
TEST(KeptState, HasTensorsThatAreNotContiguous) {
  testing::run_ranks(3, [](RankContext& rank) {
    const at::Tensor before = at::arange(12, at::kFloat).view({3, 4}).t();
    const at::Tensor now = at::zeros({3, 4}).t();
    Fixed old({tensor::whole_shard("w", before)}), fresh({tensor::whole_shard("w", now)});
    KeptState kept;
    kept.add(keep({{"train", &old}}, 5, {{"train", "{}"}}));
    const auto done =
        restore_kept({{"train", &fresh}}, rank.rank == 1 ? &kept : nullptr, 0, *rank.world);
    EXPECT_EQ(done, 5);
    EXPECT_TRUE(at::equal(now, before));
  });
}

// Each rank has what another one needs.
TEST(KeptState, MovesTensorsThatAreCutByColumns) {
  testing::run_ranks(3, [](RankContext& rank) {
    Sliced old((rank.rank + 1) % 3, 3, 1), fresh(rank.rank, 3, 0);
    KeptState kept;
    kept.add(keep({{"train", &old}}, 5, {{"train", "{}"}}));
    EXPECT_EQ(restore_kept({{"train", &fresh}}, &kept, 0, *rank.world), 5);
    EXPECT_TRUE(fresh.is_whole());
  });
}

// Ranks' rows of a tensor of two columns; row r has r + 1.
std::vector<NamedShard> ranks_rows(std::int64_t ranks, const std::vector<std::int64_t>& which) {
  std::vector<NamedShard> rows;
  for (const std::int64_t row : which)
    rows.push_back({.name = "compression/r",
                    .shape = {ranks, 2},
                    .begin = 2 * row,
                    .end = 2 * row + 2,
                    .local = at::full({2}, static_cast<double>(row + 1)),
                    .optional = true,
                    .row_of_rank = true});
  return rows;
}

// Four ranks kept the rows, and three go on. Rank 0 has a copy of the lost rank's row, of step 4 only.
TEST(KeptState, DealsOutTheRowsOfLostRanksIfTheyWereKept) {
  testing::run_ranks(3, [](RankContext& rank) {
    const auto restored = [&](const std::vector<std::int64_t>& steps, bool lossless) {
      KeptState kept;
      for (const std::int64_t step : steps) {
        const std::vector<std::int64_t> copies = rank.rank == 0 && step == 4
                                                     ? std::vector<std::int64_t>{0, 3}
                                                     : std::vector<std::int64_t>{rank.rank};
        Fixed old(ranks_rows(4, copies));
        kept.add(keep({{"train", &old}}, step, {{"train", "{}"}}));
      }
      Fixed fresh(ranks_rows(3, {rank.rank}));
      const auto done = restore_kept({{"train", &fresh}}, &kept, 0, *rank.world, lossless);
      return std::pair(done, fresh.state()[0].local[0].item<double>());
    };
    const double own = rank.rank + 1, summed = rank.rank == 0 ? 5 : own;
    for (const bool lossless : {true, false})
      EXPECT_EQ(restored({4, 5}, lossless), std::pair(std::optional<std::int64_t>(4), summed));
    EXPECT_EQ(restored({5}, true).first, std::nullopt);
    EXPECT_EQ(restored({5}, false), std::pair(std::optional<std::int64_t>(5), own));
  });
}

// After one rank alone, which keeps none; and rows of ranks that were in the middle of a step.
TEST(KeptState, RowsThatWereNeverThereAreNotMissed) {
  testing::run_ranks(3, [](RankContext& rank) {
    const auto restored = [&](std::vector<NamedShard> kept_shards, bool lossless) {
      Fixed old(std::move(kept_shards)), fresh(ranks_rows(3, {rank.rank}));
      KeptState kept;
      kept.add(keep({{"train", &old}}, 5, {{"train", "{}"}}));
      const auto done = restore_kept({{"train", &fresh}}, &kept, 0, *rank.world, lossless);
      if (done) {
        EXPECT_EQ(fresh.state()[0].local.sum().item<double>(), 0);
      }
      return done;
    };
    EXPECT_EQ(restored({}, true), 5);
    std::vector<NamedShard> empty = ranks_rows(3, {rank.rank});
    empty[0].end = empty[0].begin;
    empty[0].local = at::empty({0});
    EXPECT_EQ(restored(empty, true), std::nullopt);
    EXPECT_EQ(restored(empty, false), 5);
  });
}

// Looks at every source for every element.
std::vector<Move> moves_one_by_one(const Tensors& need, const Tensors& have, int ranks) {
  std::vector<Move> moves;
  for (const auto& [key, needs] : need)
    for (const Interval& one : needs)
      for (std::int64_t at = one.begin; at < one.end; at = moves.back().end) {
        const auto rate = [&](const Interval& source) {
          return std::tuple(source.rank == one.rank, source.end,
                            -((source.rank - one.rank + ranks) % ranks));
        };
        const Interval* best = nullptr;
        for (const Interval& source : have.at(key))
          if (source.begin <= at && source.end > at && (!best || rate(source) > rate(*best)))
            best = &source;
        moves.push_back({at, std::min(best->end, one.end), *best, one});
      }
  return moves;
}

TEST(Moves, TakeTheBestSourceOfEveryElement) {
  std::mt19937 random(5);
  const auto upto = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const int ranks = static_cast<int>(upto(4)) + 1;
    Tensors need, have;
    for (const char* key : {"a", "b"})
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t index = 0; index < 6; ++index) {
          std::int64_t begin = upto(20);
          have[key].push_back({begin, begin + upto(20), rank, index});
          begin = upto(20);
          need[key].push_back({begin, begin + upto(20), rank, index});
        }
    EXPECT_EQ(plan_moves({{"c", {{0, 1, 0, 0}}}}, have, ranks), std::nullopt);
    EXPECT_EQ(plan_moves({{"c", {{0, 0, 0, 0}}}}, have, ranks), std::nullopt) << "another shape";
    for (const char* key : {"a", "b"}) have[key].push_back({0, 41, ranks - 1, 6});
    EXPECT_EQ(plan_moves(need, have, ranks), moves_one_by_one(need, have, ranks)) << round;
  }
}

// As of a tensor that ranks cut by columns: one interval per row.
TEST(Moves, OfVeryManyIntervalsAreFoundAtOnce) {
  constexpr std::int64_t kRanks = 2, kMany = 200'000;
  Tensors all;
  for (int rank = 0; rank < kRanks; ++rank)
    for (std::int64_t row = 0; row < kMany; ++row)
      all["w"].push_back(
          {row * kRanks + rank, row * kRanks + rank + 1, rank, static_cast<std::size_t>(row)});
  const auto moves = plan_moves(all, all, kRanks);
  ASSERT_TRUE(moves.has_value());
  EXPECT_EQ(moves->size(), static_cast<std::size_t>(kRanks * kMany));
}

}  // namespace
}  // namespace trireme::checkpoint
