#include "trireme/input/loader_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/serialize.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/input/sampler_state.h"
#include "trireme/job/job.h"
#include "trireme/job/job_input.h"

namespace trireme {
namespace {

using input::SamplerState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A batch of this dataset is the list of its sample numbers.
class Numbers final
    : public torch::data::datasets::BatchDataset<Numbers, std::vector<std::size_t>> {
 public:
  explicit Numbers(std::size_t n) : n_(n) {}
  std::vector<std::size_t> get_batch(c10::ArrayRef<std::size_t> samples) override {
    return samples.vec();
  }
  std::optional<std::size_t> size() const override { return n_; }

 private:
  std::size_t n_;
};

std::shared_ptr<SamplerState> make_state(std::int64_t n, std::int64_t batch, int rank, int size,
                                         std::uint64_t seed = 7) {
  return std::make_shared<SamplerState>(n, SamplerOptions{.batch = batch, .seed = seed}, rank,
                                        size);
}

auto make_loader(const std::shared_ptr<SamplerState>& state, std::size_t micro, int workers) {
  return torch::data::make_data_loader(
      Numbers(static_cast<std::size_t>(state->size())), Sampler(state),
      torch::data::DataLoaderOptions().batch_size(micro).workers(workers));
}

struct Seen {
  std::vector<std::size_t> samples;
  MicroStep step;
};

// As DataParallel does inside step(): consumes this micro-step, and then takes
// part in batches that have no share for this rank.
void step(SamplerState& state, const std::vector<std::size_t>& samples, std::vector<Seen>& seen) {
  const auto now = state.peek();
  ASSERT_TRUE(now.has_value());
  ASSERT_TRUE(now->has_data);
  ASSERT_EQ(static_cast<std::int64_t>(samples.size()), now->samples);
  seen.push_back({samples, *now});
  state.consume();
  if (!now->last_of_batch) return;
  for (auto next = state.peek(); next && !next->has_data; next = state.peek()) {
    seen.push_back({{}, *next});
    state.consume();
  }
}

std::vector<Seen> run_epochs(const std::shared_ptr<SamplerState>& state, std::size_t micro,
                             int workers, int epochs) {
  std::vector<Seen> seen;
  auto loader = make_loader(state, micro, workers);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& samples : *loader) step(*state, samples, seen);
    EXPECT_FALSE(state->peek().has_value());
  }
  return seen;
}

// (batch, micro-batch) -> samples, over all ranks; each exactly once.
using Global = std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::size_t>>;
Global run_world(std::int64_t n, std::int64_t batch, std::size_t micro, int size, int workers) {
  Global global;
  for (int rank = 0; rank < size; ++rank) {
    for (const Seen& seen : run_epochs(make_state(n, batch, rank, size), micro, workers, 3)) {
      if (!seen.step.has_data) continue;
      EXPECT_TRUE(
          global.emplace(std::pair(seen.step.batch_number, seen.step.index), seen.samples).second);
    }
  }
  return global;
}

TEST(Sampler, OneGlobalOrderOnAnyRankCountAndWithWorkers) {
  for (auto [n, batch, micro] :
       std::vector<std::array<int, 3>>{{10, 4, 1}, {21, 8, 2}, {23, 8, 2}, {16, 8, 2}}) {
    const Global alone = run_world(n, batch, micro, 1, 0);
    for (int size : {1, 2, 3, 4}) {
      for (int workers : {0, 2}) {
        EXPECT_EQ(run_world(n, batch, micro, size, workers), alone) << n << " " << size;
      }
    }
  }
}

TEST(Sampler, EveryEpochHasEverySampleOnceInANewOrder) {
  std::vector<std::vector<std::size_t>> epochs(3);
  for (const Seen& seen : run_epochs(make_state(10, 4, 0, 1), 1, 0, 3)) {
    auto& order = epochs[seen.step.batch_number / 3];
    order.insert(order.end(), seen.samples.begin(), seen.samples.end());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  for (auto& order : epochs) {
    std::sort(order.begin(), order.end());
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
}

TEST(Sampler, TheShortLastBatchIsKeptAndWeighted) {
  const auto seen = run_epochs(make_state(9, 4, 0, 1), 2, 0, 1);  // 4 + 4 + 1
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[0].step.total, 2u);
  EXPECT_EQ(seen[0].step.global_samples, 4);
  EXPECT_FALSE(seen[0].step.last_of_batch);
  EXPECT_TRUE(seen[1].step.last_of_batch);
  EXPECT_FALSE(seen[3].step.last_of_epoch);
  EXPECT_EQ(seen[4].step.total, 1u);
  EXPECT_EQ(seen[4].step.samples, 1);
  EXPECT_EQ(seen[4].step.global_samples, 1);
  EXPECT_TRUE(seen[4].step.last_of_batch);
  EXPECT_TRUE(seen[4].step.last_of_epoch);
}

TEST(Sampler, ARankWithoutAShareTakesPartInsideTheStepBefore) {
  for (int workers : {0, 2}) {  // n = 10, batch 4, micro 1: the last batch has 2 for 3 ranks
    int without = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto seen = run_epochs(make_state(10, 4, rank, 3), 1, workers, 2);
      std::vector<std::int64_t> batches;
      for (const Seen& s : seen) {
        if (s.step.last_of_batch) batches.push_back(s.step.batch_number);
        if (s.step.has_data) continue;
        ++without;
        EXPECT_EQ(s.step.total, 2u);
        EXPECT_TRUE(s.step.last_of_epoch);
      }
      EXPECT_THAT(batches, ElementsAre(0, 1, 2, 3, 4, 5)) << rank;  // no batch is left out
    }
    EXPECT_EQ(without, 2);
  }
}

TEST(Sampler, ThePositionCountsWhatWasConsumedNotWhatWasPrefetched) {
  auto whole = run_epochs(make_state(21, 8, 0, 1), 2, 0, 2);
  for (int workers : {0, 2}) {
    for (std::size_t stop : {4, 8, 11, 15}) {  // after batches 1, 2, 3 (an epoch's end) and 4
      const auto first = make_state(21, 8, 0, 1);
      std::vector<Seen> seen;
      std::string saved;
      {
        auto loader = make_loader(first, 2, workers);
        for (int epoch = 0; saved.empty(); ++epoch) {
          for (auto& samples : *loader) {
            step(*first, samples, seen);
            if (seen.size() == stop) saved = first->metadata();
            if (!saved.empty()) break;
          }
        }
      }
      const auto second = make_state(21, 8, 0, 1);
      second->restored(saved);
      auto loader = make_loader(second, 2, workers);
      while (seen.size() < whole.size()) {
        for (auto& samples : *loader) step(*second, samples, seen);
      }
      ASSERT_EQ(seen.size(), whole.size());
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_EQ(seen[i].samples, whole[i].samples) << stop << " " << i;
        EXPECT_EQ(seen[i].step.batch_number, whole[i].step.batch_number);
      }
    }
  }
}

TEST(Sampler, AfterAResumeARankMayBeginWithABatchItHasNoShareOf) {
  for (int workers : {0, 2}) {
    const auto one = make_state(10, 4, 0, 1);
    std::vector<Seen> seen;
    auto loader = make_loader(one, 1, 0);
    for (auto& samples : *loader) {
      step(*one, samples, seen);
      if (seen.size() == 8) break;  // two batches of 4: the short one is next
    }
    // On three ranks, rank 0 has no share of it. DataParallel takes part when the pass begins.
    std::shared_ptr<SamplerState> state;
    int took_part = 0;
    state = std::make_shared<SamplerState>(
        10, SamplerOptions{.batch = 4, .seed = 7}, 0, 3, [&state, &took_part] {
          for (auto next = state->peek(); next && !next->has_data; next = state->peek()) {
            EXPECT_EQ(next->batch_number, 2);
            state->consume();
            ++took_part;
          }
        });
    state->restored(one->metadata());
    auto resumed = make_loader(state, 1, workers);
    for (auto& samples : *resumed) FAIL() << samples.size();  // the epoch is over
    EXPECT_EQ(took_part, 1);
    std::vector<Seen> next_epoch;
    for (auto& samples : *resumed) step(*state, samples, next_epoch);
    ASSERT_FALSE(next_epoch.empty());
    EXPECT_EQ(next_epoch[0].step.batch_number, 3);
    EXPECT_EQ(took_part, 1);  // for the next short batch, step() takes part
    EXPECT_FALSE(next_epoch.back().step.has_data);
  }
}

TEST(Sampler, ALoaderThatNobodyFollowsStillGetsNewOrders) {
  const auto state = make_state(8, 4, 0, 1);
  auto loader = make_loader(state, 4, 0);
  std::vector<std::vector<std::size_t>> epochs(2);
  for (auto& order : epochs) {
    for (auto& samples : *loader) order.insert(order.end(), samples.begin(), samples.end());
  }
  EXPECT_EQ(epochs[1].size(), 8u);
  EXPECT_NE(epochs[0], epochs[1]);
}

// One rank alone may do it, to see what a batch looks like.
TEST(Sampler, ALookAtTheDataBeforeTheFirstStepSkipsNoEpoch) {
  const auto whole = run_epochs(make_state(8, 4, 0, 1), 4, 0, 1);
  for (int workers : {0, 2}) {
    const auto state = make_state(8, 4, 0, 1);
    EXPECT_FALSE(state->peek().has_value());  // a DataParallel is made
    {
      auto loader = make_loader(state, 4, workers);
      for (auto& samples : *loader) {
        EXPECT_EQ(samples, whole[0].samples);
        break;
      }
    }
    const auto seen = run_epochs(state, 4, workers, 1);
    ASSERT_EQ(seen.size(), whole.size());
    EXPECT_EQ(seen[0].step.batch_number, 0);
    EXPECT_EQ(seen[0].samples, whole[0].samples);
  }
}

TEST(Sampler, SaysWhatDoesNotFit) {
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal([] { make_state(10, 4, 0, 3)->next(3); }), HasSubstr("4 = 1 x 3 + 1"));
  EXPECT_THAT(refusal([] { make_state(10, 4, 0, 3)->next(2); }), HasSubstr("more ranks than"));
  EXPECT_THAT(refusal([] { make_state(2, 4, 0, 3)->next(1); }), HasSubstr("more ranks than"));
  EXPECT_THAT(refusal([] { make_state(0, 4, 0, 1); }), HasSubstr("0 samples"));
  EXPECT_THAT(refusal([] { make_state(4, 0, 0, 1); }), HasSubstr("at least 1"));
  const std::string saved = make_state(10, 4, 0, 1)->metadata();
  EXPECT_THAT(refusal([&] { make_state(11, 4, 0, 1)->restored(saved); }),
              HasSubstr("was 10 and is 11"));
  EXPECT_THAT(refusal([&] { make_state(10, 4, 0, 1, 8)->restored(saved); }),
              HasSubstr("was 7 and is 8"));
  EXPECT_THAT(refusal([&] { make_state(10, 4, 0, 1)->restored("{"); }), HasSubstr("lacks"));
  const auto asked = make_state(10, 4, 0, 1);
  asked->next(2);
  EXPECT_THAT(refusal([&] {
                const auto other = make_state(10, 4, 0, 1);
                other->restored(asked->metadata());
                other->next(4);
              }),
              HasSubstr("was 2 samples and the loader's is 4"));
  EXPECT_THROW(make_state(10, 4, 0, 1)->consume(), CheckFailure);  // before any pass
}

TEST(Sampler, TheJobHasOnePlan) {
  char name[] = "test";
  char* arguments[] = {name, nullptr};
  Job job(1, arguments);  // one rank
  {
    Sampler sampler(job, 10, {.batch = 4});
    ASSERT_NE(job.input().plan(), nullptr);
    Sampler evaluation(job, 10, {.batch = 4, .follow = false});
    EXPECT_THROW(Sampler(job, 10, {.batch = 4}), ConfigError);
    sampler.reset();
    EXPECT_EQ(sampler.next(2)->size(), 2u);
    EXPECT_EQ(job.input().plan()->peek()->total, 2u);
    EXPECT_THROW(sampler.reset(11), ConfigError);
  }
  Sampler next(job, 20, {.batch = 4});  // the first Sampler is destroyed
}

TEST(Sampler, SavesIntoATorchArchive) {
  const auto state = make_state(8, 4, 0, 1);
  std::vector<Seen> seen;
  auto loader = make_loader(state, 4, 0);
  for (auto& samples : *loader) {
    step(*state, samples, seen);
    break;
  }
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  Sampler(state).save(out);
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  const auto other = make_state(8, 4, 0, 1);
  Sampler(other).load(in);
  EXPECT_THAT(other->metadata(), HasSubstr("\"position\":1"));
}

}  // namespace
}  // namespace trireme
