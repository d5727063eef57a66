#include "trireme/input/batches.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/kernel/assignment.h"
#include "trireme/tensor/determinism.h"
#include "trireme/testing/threads.h"

namespace trireme::batches_test {
namespace {

std::shared_ptr<const std::vector<std::int32_t>> counting(int length) {
  auto tokens = std::make_shared<std::vector<std::int32_t>>(length);
  std::iota(tokens->begin(), tokens->end(), 0);
  return tokens;
}

const at::Tensor& field(const MicroBatch& micro, std::size_t index) {
  return micro.fields.at(index).second;
}

// Sample i is the number i. Counts the calls of read(), which throws for the sample `bad`.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t bad = -1) : size_(size), bad_(bad) {}
  std::int64_t size() const override { return size_; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  input::Fields read(std::span<const std::int64_t> samples) const override {
    for (std::int64_t sample : samples) {
      if (sample == bad_) throw std::runtime_error("sample is bad");
    }
    return {{"number", at::tensor(std::vector<std::int64_t>(samples.begin(), samples.end()))}};
  }

 private:
  const std::int64_t size_, bad_;
};

class BatchesTest : public ::testing::Test {
 protected:
  std::shared_ptr<Waiter> waiter_ = RealWaiter::make();

  Batches make(std::shared_ptr<const Dataset> data, BatchesOptions options, int rank = 0,
               int size = 1) {
    return Batches(std::move(data), options, rank, size, waiter_);
  }
  // The numbers of all samples, by (step, micro-batch), over all ranks.
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::int64_t>> everything(
      std::shared_ptr<const Dataset> data, BatchesOptions options, int size) {
    std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::int64_t>> all;
    for (int rank = 0; rank < size; ++rank) {
      for (Batch& batch : make(data, options, rank, size)) {
        for (const MicroBatch& micro : batch.micro) {
          const at::Tensor values = field(micro, 0).flatten();
          auto& slot = all[{batch.step, micro.index}];
          EXPECT_TRUE(slot.empty()) << "a micro-batch on two ranks";
          slot.assign(values.data_ptr<std::int64_t>(),
                      values.data_ptr<std::int64_t>() + values.numel());
        }
      }
    }
    return all;
  }
};

TEST_F(BatchesTest, TargetsAreTheTokensOneLater) {
  auto data = TextDataset::random_windows(counting(100), 8, 7);
  Batch batch = make(data, {.batch = 4, .micro = 2}).next();
  EXPECT_EQ(batch.total, 2u);
  EXPECT_EQ(batch.global_count, 32);
  ASSERT_EQ(batch.micro.size(), 2u);
  for (const MicroBatch& micro : batch.micro) {
    EXPECT_EQ(micro.fields[0].first, "tokens");
    EXPECT_EQ(micro.fields[1].first, "targets");
    EXPECT_EQ(field(micro, 0).sizes(), (std::vector<std::int64_t>{2, 8}));
    EXPECT_TRUE(at::equal(field(micro, 0) + 1, field(micro, 1)));
    EXPECT_EQ(micro.count, 16);
  }
  EXPECT_EQ(batch.micro[1].first_sample, 2);
}

// Says with how many threads a kernel would run that a Dataset calls.
class ThreadsOfAKernel final : public Dataset {
 public:
  std::int64_t size() const override { return 8; }
  std::int64_t count_items(std::span<const std::int64_t>) const override { return 1; }
  input::Fields read(std::span<const std::int64_t>) const override {
    const auto threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    return {{"threads", at::full({1}, threads(), at::kLong)}};
  }
};

// With as many threads as cores a thread starts.
TEST_F(BatchesTest, ADatasetsKernelsHaveTheJobsThreads) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  for (const int prefetch : {0, 2}) {
    tensor::set_up_process({});
    Batches batches =
        make(std::make_shared<ThreadsOfAKernel>(), {.batch = 1, .micro = 1, .prefetch = prefetch});
    tensor::set_up_process({.kernel_threads = threads});
    EXPECT_EQ(field(batches.next().micro.at(0), 0).item<int>(), threads) << prefetch;
  }
  tensor::set_up_process({});
}

TEST_F(BatchesTest, RandomWindowsReachBothEndsOfTheText) {
  auto data = TextDataset::random_windows(counting(12), 8, 1);  // starts 0 ... 3
  std::map<std::int64_t, int> starts;
  for (int i = 0; i < 400; ++i) ++starts[data->position(i)];
  ASSERT_EQ(starts.size(), 4u);
  EXPECT_EQ(starts.begin()->first, 0);
  EXPECT_EQ(starts.rbegin()->first, 3);
  for (const auto& [start, count] : starts) EXPECT_GT(count, 60) << start;
  EXPECT_THROW(TextDataset::random_windows(counting(8), 8, 1), ConfigError);
  EXPECT_EQ(TextDataset::random_windows(counting(9), 8, 1)->position(5), 0);
}

TEST_F(BatchesTest, FixedWindowsMakeEachTokenATargetOnce) {
  auto data = TextDataset::fixed_windows(counting(33), 8);
  EXPECT_EQ(data->size(), 4);
  EXPECT_EQ(data->position(3), 24);
}

TEST_F(BatchesTest, TheSamplesDoNotDependOnRankCountOrPrefetch) {
  for (auto data : std::vector<std::shared_ptr<const Dataset>>{
           TextDataset::random_windows(counting(1000), 8, 7), std::make_shared<Numbers>(21)}) {
    const BatchesOptions options{.batch = 8, .micro = 2, .steps = 7, .seed = 3};
    const auto alone = everything(data, options, 1);
    for (int size : {2, 3, 4}) EXPECT_EQ(everything(data, options, size), alone) << size;
    BatchesOptions other = options;
    other.prefetch = 0;
    EXPECT_EQ(everything(data, other, 3), alone);
    other = options;
    other.seed = 4;
    if (data->size() > 0) {
      EXPECT_NE(everything(data, other, 1), alone);
    }
  }
}

TEST_F(BatchesTest, AnEpochHasEverySampleOnceAndEveryEpochAnotherOrder) {
  auto batches = make(std::make_shared<Numbers>(10), {.batch = 4, .micro = 1});
  std::vector<std::vector<std::int64_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    for (int step = 0; step < 3; ++step) {
      Batch batch = batches.next();
      EXPECT_EQ(batch.total, step < 2 ? 4u : 2u);  // the short last batch is kept
      EXPECT_EQ(batch.global_count, step < 2 ? 4 : 2);
      for (const auto& micro : batch.micro) order.push_back(field(micro, 0).item<std::int64_t>());
    }
    epochs.push_back(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST_F(BatchesTest, ARankWithoutAShareGetsAnEmptyBatch) {
  auto batches = make(std::make_shared<Numbers>(9), {.batch = 4, .micro = 1}, 0, 3);
  batches.next();
  batches.next();
  Batch last = batches.next();
  EXPECT_EQ(last.total, 1u);
  EXPECT_EQ(last.global_count, 1);
  EXPECT_TRUE(last.micro.empty());
}

// The first batches were read ahead for other shares.
TEST_F(BatchesTest, ReadsAgainWhatWasReadForOtherShares) {
  for (const int prefetch : {0, 3}) {
    kernel::Assignment shares = kernel::contiguous(2);
    std::vector<Batches> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back(
          std::make_shared<Numbers>(40),
          BatchesOptions{.batch = 8, .micro = 2, .shuffle = false, .prefetch = prefetch}, rank, 2,
          waiter_, [&] { return shares; });
    std::vector<std::size_t> counts;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) shares.weights = {3, 1};
      std::vector<std::int64_t> samples;
      for (Batches& rank : ranks) {
        const Batch batch = rank.next();
        EXPECT_EQ(batch.step, step);
        counts.push_back(batch.micro.size());
        for (const MicroBatch& micro : batch.micro) {
          const at::Tensor values = field(micro, 0);
          samples.insert(samples.end(), values.data_ptr<std::int64_t>(),
                         values.data_ptr<std::int64_t>() + values.numel());
        }
      }
      std::vector<std::int64_t> expected(8);
      std::iota(expected.begin(), expected.end(), 8 * step);
      EXPECT_EQ(samples, expected) << "step " << step << ", " << prefetch << " ahead";
    }
    EXPECT_THAT(counts, ::testing::ElementsAre(2, 2, 2, 2, 3, 1, 3, 1)) << prefetch << " ahead";
  }
}

TEST_F(BatchesTest, GoesOnWhereItWasSaved) {
  auto data = std::make_shared<Numbers>(21);
  const BatchesOptions options{.batch = 8, .micro = 2};
  auto first = make(data, options);
  for (int i = 0; i < 4; ++i) first.next();
  const std::string saved = first.metadata();  // although two more are read ahead
  auto second = make(data, options, 1, 3);     // on another rank count
  second.next();
  second.restored(saved);
  EXPECT_EQ(second.position(), 4);
  auto third = make(data, options, 1, 3);
  for (int i = 0; i < 4; ++i) third.next();
  for (int i = 0; i < 3; ++i) {
    Batch a = second.next(), b = third.next();
    EXPECT_EQ(a.step, b.step);
    ASSERT_EQ(a.micro.size(), b.micro.size());
    for (std::size_t m = 0; m < a.micro.size(); ++m) {
      EXPECT_TRUE(at::equal(field(a.micro[m], 0), field(b.micro[m], 0)));
    }
  }
}

TEST_F(BatchesTest, RefusesThePositionOfAnotherRun) {
  auto batches = make(std::make_shared<Numbers>(21), {.batch = 8, .micro = 2});
  const std::string saved =
      make(std::make_shared<Numbers>(22), {.batch = 8, .micro = 2}).metadata();
  try {
    batches.restored(saved);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.message(), ::testing::HasSubstr("samples was 22 and is 21"));
  }
  const auto refused = [&](const BatchesOptions& before, const std::string& text) {
    const std::string other = make(std::make_shared<Numbers>(21), before).metadata();
    try {
      batches.restored(other);
      ADD_FAILURE() << text;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.message(), ::testing::HasSubstr(text));
    }
  };
  refused({.batch = 8, .micro = 2, .shuffle = false}, "shuffle was 0 and is 1");
  refused({.batch = 8, .micro = 2, .every = 2}, "every was 2 and is 1");
  refused({.batch = 8, .micro = 4}, "micro was 4 and is 2");
  EXPECT_THROW(batches.restored("{}"), CheckpointError);
  EXPECT_THROW(batches.restored("no json"), CheckpointError);
}

TEST_F(BatchesTest, AReadersExceptionComesOutOfNext) {
  for (int prefetch : {0, 2}) {
    auto batches = make(std::make_shared<Numbers>(8, 5),
                        {.batch = 4, .micro = 2, .shuffle = false, .prefetch = prefetch});
    batches.next();
    EXPECT_THROW(batches.next(), std::runtime_error) << prefetch;
    EXPECT_THROW(batches.next(), std::runtime_error) << "the second time " << prefetch;
    EXPECT_EQ(batches.position(), 1);
    batches.seek(0);
    EXPECT_EQ(batches.next().step, 0);
  }
}

// A program may wait for its signals in a thread of its own.
TEST_F(BatchesTest, TheReadingThreadTakesNoSignals) {
  const std::set<std::string> before = testing::threads();
  auto batches = make(std::make_shared<Numbers>(8), {.batch = 4, .micro = 2, .prefetch = 2});
  std::set<std::string> reading = testing::threads();
  for (const std::string& one : before) reading.erase(one);
  ASSERT_EQ(reading.size(), 1u);
  EXPECT_TRUE(testing::blocks(*reading.begin(), SIGTERM));
}

TEST_F(BatchesTest, TheRangeEndsAfterItsSteps) {
  auto batches = make(std::make_shared<Numbers>(8), {.batch = 4, .micro = 2, .steps = 5});
  int steps = 0;
  for (Batch& batch : batches) EXPECT_EQ(batch.step, steps++);
  EXPECT_EQ(steps, 5);
  for (Batch& batch : batches) FAIL() << batch.step;
}

TEST_F(BatchesTest, FixedBatchesSpreadOverTheDatasetOnAnyRankCount) {
  const Numbers data(100);
  for (int size : {1, 2, 3}) {
    std::vector<std::int64_t> seen;
    for (int step = 0; step < 2; ++step) {
      for (int rank = 0; rank < size; ++rank) {
        const auto batches = input::fixed_share(data, 4, 2, 2, kernel::contiguous(size), rank);
        ASSERT_EQ(batches.size(), 2u);
        EXPECT_EQ(batches[step].global_count, 4);
        for (const auto& micro : batches[step].micro) {
          for (int i = 0; i < 2; ++i) seen.push_back(field(micro, 0)[i].item<std::int64_t>());
        }
      }
    }
    EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 12, 25, 37, 50, 62, 75, 87}));
  }
  EXPECT_EQ(input::fixed_share(Numbers(3), 4, 2, 2, kernel::contiguous(1), 0).front().global_count,
            3);
}

TEST_F(BatchesTest, RefusesBatchesThatCannotBe) {
  const auto numbers = std::make_shared<Numbers>(8);
  EXPECT_THROW(make(numbers, {.batch = 4, .micro = 2, .every = 0}), ConfigError);
  EXPECT_THROW(make(numbers, {.batch = 4, .micro = 2, .first = -1}), ConfigError);
  const auto refusal = [](std::int64_t size, std::int64_t batch, std::int64_t count) {
    try {
      input::fixed_share(Numbers(size), batch, 2, count, kernel::contiguous(1), 0);
    } catch (const ConfigError& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(0, 4, 1), ::testing::HasSubstr("of an endless dataset"));
  EXPECT_THAT(refusal(8, 0, 1), ::testing::HasSubstr("fixed batches of 0 samples"));
  EXPECT_THAT(refusal(8, 4, 0), ::testing::HasSubstr("0 fixed batches of 4 samples"));
  EXPECT_EQ(refusal(8, 4, 1), "accepted");
}

TEST_F(BatchesTest, AnExampleReadsNoOtherSamples) {
  const Numbers data(100, /*bad=*/31);
  const MicroBatch example = input::example_of(data, 4);
  EXPECT_TRUE(at::equal(field(example, 0), at::tensor({0, 25, 50, 75}, at::kLong)));
}

}  // namespace
}  // namespace trireme::batches_test
