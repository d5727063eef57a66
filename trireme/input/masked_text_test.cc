#include "trireme/input/masked_text.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::int64_t kBlock = 40, kMask = 256;

struct Masked : ::testing::Test {
  Masked() {
    auto text = std::make_shared<std::string>();
    for (int i = 0; i < 20'000; ++i) *text += static_cast<char>('a' + i * i % 23);
    plain = TextDataset::random_windows({*text, text}, kBlock, 5);
  }
  MaskedText of_seed(std::uint64_t seed) const { return {plain, kBlock, kMask, seed}; }
  std::shared_ptr<const TextDataset> plain;
};

TEST_F(Masked, AsksForFifteenPercentAndHidesMostOfThem) {
  const MaskedText masked = of_seed(1);
  std::vector<std::int64_t> samples(500);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(3 * i);
  const at::Tensor whole = plain->read(samples)[0].second;
  const auto fields = masked.read(samples);
  const at::Tensor &tokens = fields[0].second, &targets = fields[1].second;
  const at::Tensor asked = targets.ge(0);
  EXPECT_TRUE(asked.sum(1).eq(6).all().item<bool>());
  EXPECT_EQ(masked.count_items(samples), 3000);
  EXPECT_EQ(asked.sum().item<std::int64_t>(), 3000);
  // Targets are the original tokens; other positions are unchanged.
  EXPECT_TRUE(at::equal(targets.masked_select(asked), whole.masked_select(asked)));
  EXPECT_TRUE(at::equal(tokens.masked_select(asked.logical_not()),
                        whole.masked_select(asked.logical_not())));
  const double hidden = tokens.eq(kMask).sum().item<double>() / 3000;
  const double kept = tokens.eq(whole).logical_and(asked).sum().item<double>() / 3000;
  EXPECT_NEAR(hidden, 0.8, 0.03);
  EXPECT_NEAR(kept, 0.1, 0.025);
  // Each position is a target about equally often: 75 times.
  EXPECT_GT(asked.sum(0).min().item<std::int64_t>(), 40);
  EXPECT_LT(asked.sum(0).max().item<std::int64_t>(), 115);
}

TEST_F(Masked, OnlySeedAndSampleDecide) {
  const MaskedText masked = of_seed(1);
  const auto together = masked.read(std::vector<std::int64_t>{4, 9, 2});
  const auto alone = of_seed(1).read(std::vector<std::int64_t>{9});
  for (std::size_t field : {0, 1})
    EXPECT_TRUE(at::equal(alone[field].second, together[field].second.narrow(0, 1, 1)));
  EXPECT_FALSE(at::equal(of_seed(2).read(std::vector<std::int64_t>{9})[1].second, alone[1].second));
}

// It would write beyond the tokens.
TEST_F(Masked, ABlockOfAnotherLengthIsRefused) {
  EXPECT_THROW(MaskedText(plain, kBlock + 1, kMask, 1), ConfigError);
  EXPECT_THROW(MaskedText(plain, kBlock, 0, 1), ConfigError);
}

}  // namespace
}  // namespace trireme
