#include "trireme/ps/server/sweep.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>

#include "trireme/ps/server/shard.h"

namespace trireme::inline v0::ps::sweep_test {
namespace {

using Memory = std::vector<std::vector<std::uint64_t>>;

// An update whose effect depends on those before it.
Sweep::Update update_of(Memory& memory, std::uint64_t number) {
  return [&memory, number](std::size_t slice, std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin % Sweep::kBlock, 0u);
    EXPECT_LE(end - begin, Sweep::kBlock);
    for (std::size_t i = begin; i < end; ++i) memory[slice][i] = 31 * memory[slice][i] + number;
  };
}

Memory zeros(const std::vector<std::size_t>& sizes) {
  Memory memory;
  for (const std::size_t size : sizes) memory.emplace_back(size);
  return memory;
}

TEST(Sweep, EachElementGetsAllUpdatesInTheirOrder) {
  const std::vector<std::vector<std::size_t>> models{
      {}, {0}, {1}, {4096}, {4097, 1, 0, 12'288}, {30'000}, {3, 5'000, 8'192, 0, 20'001, 1}};
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::vector<std::size_t>& sizes = models[seed % models.size()];
    Memory together = zeros(sizes), one_by_one = zeros(sizes);
    Sweep sweep(sizes, in_one_part, Sweep::kBlock * (1 + random() % 3));
    std::uint64_t begun = 0;
    for (int i = 0; i < 40; ++i) {
      if (random() % 3 == 0) {
        ++begun;
        sweep.begin(update_of(together, begun));
        EXPECT_EQ(sweep.begun(), begun);
      } else if (sweep.under_way()) {
        sweep.advance();
      }
      EXPECT_LE(sweep.completed(), begun);
      EXPECT_EQ(sweep.under_way(), sweep.completed() < begun);
    }
    sweep.finish();
    EXPECT_EQ(sweep.completed(), begun);
    for (std::uint64_t number = 1; number <= begun; ++number)
      for (std::size_t slice = 0; slice < sizes.size(); ++slice)
        for (std::uint64_t& element : one_by_one[slice]) element = 31 * element + number;
    EXPECT_EQ(together, one_by_one) << "seed " << seed;
  }
}

// A later update does not delay one that is under way.
TEST(Sweep, AnUpdateIsCompleteOnceItHasGoneRound) {
  const std::vector<std::size_t> sizes{4 * Sweep::kBlock};
  Memory memory = zeros(sizes);
  Sweep sweep(sizes, in_one_part, Sweep::kBlock);
  for (std::uint64_t round = 1; round <= 5; ++round) {
    sweep.begin(update_of(memory, 2 * round - 1));
    sweep.advance(), sweep.advance();
    sweep.begin(update_of(memory, 2 * round));
    sweep.advance(), sweep.advance();
    EXPECT_EQ(sweep.completed(), 2 * round - 1);
    sweep.advance(), sweep.advance();
    EXPECT_EQ(sweep.completed(), 2 * round);
  }
}

struct Pushed {
  std::vector<std::vector<std::byte>> outs;  // what each worker gets
  std::vector<std::byte> weights;
};

// Five pushes to a shard of several stretches; `together`: each begins while the one before it is under way.
Pushed push(const OptimizerOptions& optimizer, bool predicts, bool together) {
  const ServedModel model({{.name = "w", .shape = {5'000'001}},
                           {.name = "b", .shape = {77}, .decay = false},
                           {.name = "v", .shape = {400'000}, .dtype = DType::F64}},
                          1);
  Shard shard(model, 0, optimizer, in_one_part, predicts);
  std::vector<std::vector<std::byte>> gradients(5, std::vector<std::byte>(shard.bytes()));
  std::mt19937 random(3);
  Pushed pushed;
  for (auto& gradient : gradients) {
    for (const ServedModel::Slice& slice : model.slices(0))
      for (std::size_t i = 0; i < slice.size(); ++i) {
        const float value = static_cast<float>(random()) * 1e-9f - 2;
        if (slice.parameter == 2) {
          const double wide = value;
          std::memcpy(gradient.data() + slice.offset + 8 * i, &wide, 8);
        } else {
          std::memcpy(gradient.data() + slice.offset + 4 * i, &value, 4);
        }
      }
    pushed.outs.emplace_back(shard.bytes());
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto staleness = static_cast<std::int64_t>(i % 3);
    EXPECT_EQ(shard.push(gradients[i], 0.01, 0.5, {}, 0, {}, {pushed.outs[i], staleness},
                         /*finite=*/true),
              std::nullopt);
    EXPECT_EQ(shard.updates().begun(), i + 1);
    together ? shard.updates().advance() : shard.updates().finish();
  }
  shard.updates().finish();
  pushed.weights.assign(shard.weights().begin(), shard.weights().end());
  return pushed;
}

TEST(Sweep, PushesTogetherHaveTheBitsOfPushesOneByOne) {
  for (const auto& [optimizer, predicts] :
       {std::pair<OptimizerOptions, bool>{Sgd{.learning_rate = 0.1}, false},
        {Sgd{.learning_rate = 0.1, .momentum = 0.9}, true},
        {AdamW{.learning_rate = 0.01}, true},
        {Ftrl{}, false}}) {
    const Pushed together = push(optimizer, predicts, true),
                 one_by_one = push(optimizer, predicts, false);
    EXPECT_EQ(together.weights, one_by_one.weights);
    for (std::size_t i = 0; i < together.outs.size(); ++i)
      EXPECT_TRUE(together.outs[i] == one_by_one.outs[i]) << "push " << i;
  }
}

}  // namespace
}  // namespace trireme::inline v0::ps::sweep_test
