#include "trireme/train/report/trigram.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <string>
#include <thread>

#include "trireme/base/clock.h"

namespace trireme {
namespace {

using train::trigram_loss;

TEST(Trigram, RandomBytesCostTheirEntropy) {
  std::mt19937 random(3);
  std::string train, validation;
  for (int i = 0; i < 400000; ++i) train += static_cast<char>('a' + random() % 4);
  for (int i = 0; i < 20000; ++i) validation += static_cast<char>('a' + random() % 4);
  EXPECT_NEAR(trigram_loss(train, validation), std::log(4.0), 0.01);
}

TEST(Trigram, TextWithMemoryTwoIsPredicted) {
  std::string train, validation;
  for (int i = 0; i < 1000; ++i) train += "abac";
  for (int i = 0; i < 50; ++i) validation += "abac";
  EXPECT_LT(trigram_loss(train, validation), 0.05);
}

TEST(Trigram, UnseenBytesStayPossible) {
  const double loss = trigram_loss("aaaaaaaaab", "xyzxyzxyz\xff");
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_GT(loss, std::log(256.0));
}

TEST(Trigram, ProbabilitiesSumToOne) {
  // Over every possible third byte after the same two, exp(-loss of that byte) adds up to 1.
  const std::string train = "the cat sat on the mat, the hat";
  double sum = 0;
  for (int c = 0; c < 256; ++c) sum += std::exp(-trigram_loss(train, std::string("th") + char(c)));
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(Trigram, IsCountedBesideOtherWorkOrStopped) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += static_cast<char>('a' + (i * i) % 7);
  train::TrigramCount count(text, text);
  const TimePoint limit = steady_now() + std::chrono::seconds(30);
  while (!count.result() && steady_now() < limit) std::this_thread::yield();
  EXPECT_EQ(count.result(), trigram_loss(text, text));
  const std::atomic<bool> stop{true};
  EXPECT_TRUE(std::isnan(trigram_loss(text, text, &stop)));
  train::TrigramCount dropped(text, text);  // its end does not wait for the count
}

}  // namespace
}  // namespace trireme
