#include "trireme/storage/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/storage/manifest.h"

namespace trireme::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Steps 1, 2, ..., saved an hour apart, with these losses.
std::vector<SavedCheckpoint> hourly(const std::vector<double>& losses) {
  std::vector<SavedCheckpoint> saved;
  for (const double loss : losses) {
    const auto step = static_cast<std::int64_t>(saved.size() + 1);
    saved.push_back({step, 3600.0 * static_cast<double>(step), loss});
  }
  return saved;
}

TEST(Retention, KeepsTheNewest) {
  EXPECT_THAT(outdated(hourly({5, 4, 3, 2, 1}), 2), ElementsAre(1, 2, 3));
  EXPECT_THAT(outdated(hourly({5, 4}), 2), IsEmpty());
  EXPECT_THAT(outdated({}, {1, 5, 5}), IsEmpty());
}

TEST(Retention, KeepsByAgeFromTheNewest) {
  EXPECT_THAT(outdated(hourly({5, 4, 3, 2, 1}), {1, 2, 0}), ElementsAre(1, 2));
  EXPECT_THAT(outdated(hourly({5, 4, 3, 2, 1}), {4, 2, 0}), ElementsAre(1));
}

TEST(Retention, AClockThatJumpsRemovesNoneOfTheNewest) {
  auto saved = hourly({5, 4, 3});
  saved[2].seconds = 1e12;
  EXPECT_THAT(outdated(saved, {2, 24, 0}), ElementsAre(1));
  saved[2].seconds = -1e12;
  EXPECT_THAT(outdated(saved, {2, 24, 0}), IsEmpty());
}

TEST(Retention, KeepsTheBestAndOfEqualOnesTheOlder) {
  EXPECT_THAT(outdated(hourly({3, 1, 2, 1, 5, 6}), {1, 0, 2}), ElementsAre(1, 3, 5));
  EXPECT_THAT(outdated(hourly({3, 1, 1, 1, 6}), {1, 0, 1}), ElementsAre(1, 3, 4));
}

TEST(Retention, WhatIsUnknownOrNoNumberIsNotAmongTheBest) {
  auto saved = hourly({NAN, INFINITY, 2, 3});
  saved[2].validation_loss.reset();
  EXPECT_THAT(outdated(saved, {1, 0, 3}), ElementsAre(1, 2, 3));
  saved[1].seconds.reset();
  EXPECT_THAT(outdated(saved, {1, 100, 0}), ElementsAre(2));
}

TEST(Retention, AManifestRemembersAndOtherManifestsKnowNothing) {
  Manifest manifest{.step = 7, .parts = {{"train", "{}"}}};
  EXPECT_FALSE(describe_saved(manifest).seconds);
  note_saved(manifest, 1234.5, 0.25);
  const Manifest again = parse_manifest(to_text(manifest), "x");
  EXPECT_EQ(describe_saved(again).step, 7);
  EXPECT_EQ(describe_saved(again).seconds, 1234.5);
  EXPECT_EQ(describe_saved(again).validation_loss, 0.25);
  note_saved(manifest, 1, NAN);
  EXPECT_FALSE(describe_saved(manifest).validation_loss);
  manifest.parts["saved"] = "[1";
  EXPECT_FALSE(describe_saved(manifest).seconds);
}

}  // namespace
}  // namespace trireme::storage
