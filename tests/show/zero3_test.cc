// The records and the output of `trireme show zero3`, against ZeRO-3's promises and the golden
// files (written by tools/update_pictures).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/cli/torch/show/record_zero3.h"
#include "trireme/show/drawing/legible_test.h"

namespace trireme::zero3_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void compare(const fs::path& path, const std::string& text) {
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "tools/update_pictures writes " << path;
  std::ostringstream is;
  is << file.rdbuf();
  EXPECT_EQ(is.str(), text) << path;
}

TEST(ShowZero3, NoMoreThanTwoBlocksAreWholeAndEachIsThereWhenItComputes) {
  for (const auto& [ranks, blocks, rounds] :
       {std::tuple{2, 2, 1}, {4, 4, 1}, {3, 5, 2}, {8, 8, 3}}) {
    const show::Zero3Recording recording =
        cli::record_zero3({.ranks = ranks, .blocks = blocks, .rounds = rounds});
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& moments = recording.moments[static_cast<std::size_t>(rank)];
      // Forward and backward of each block in each round, and the end.
      ASSERT_EQ(moments.size(), static_cast<std::size_t>(2 * blocks * rounds + 1));
      std::vector<int> sent(static_cast<std::size_t>(blocks)), added(sent);
      for (const show::Zero3Moment& moment : moments) {
        EXPECT_LE(moment.whole.size(), 2u) << moment.name;
        EXPECT_LE(moment.weight_bytes, 2 * recording.block_bytes) << moment.name;
        if (moment.block >= 0) {
          EXPECT_EQ(std::count(moment.whole.begin(), moment.whole.end(),
                               static_cast<std::uint32_t>(moment.block)),
                    1)
              << moment.name;
        }
        for (const std::uint32_t bucket : moment.sent) ++sent.at(bucket);
        for (const std::uint32_t bucket : moment.added) ++added.at(bucket);
      }
      EXPECT_TRUE(moments.back().whole.empty());
      EXPECT_EQ(moments.back().bucket_bytes, 0u);
      for (const int times : sent) EXPECT_EQ(times, rounds);
      for (const int times : added) EXPECT_EQ(times, rounds);
    }
  }
}

TEST(ShowZero3, RefusesWhatItCannotDraw) {
  EXPECT_THROW(cli::record_zero3({.ranks = 1}), ConfigError);
  EXPECT_THROW(cli::record_zero3({.blocks = 9}), ConfigError);
  EXPECT_THROW(cli::record_zero3({.rounds = 0}), ConfigError);
}

TEST(ShowZero3, PrintsTheGoldens) {
  for (const auto& [ranks, rounds] : {std::pair{4, 1}, {2, 2}}) {
    const show::Zero3Recording recording = cli::record_zero3({.ranks = ranks, .rounds = rounds});
    compare(fs::path(GOLDEN_FOLDER) / ("zero3-" + std::to_string(ranks) + ".txt"),
            show::text_of(recording));
    expect_legible(show::svg_of(recording));
    EXPECT_THAT(show::html_of(recording), HasSubstr("B0"));
  }
  compare(fs::path(PICTURE_FOLDER) / "zero3.svg",
          show::svg_of(cli::record_zero3({.ranks = 2, .blocks = 4})));
}

}  // namespace
}  // namespace trireme::zero3_test
