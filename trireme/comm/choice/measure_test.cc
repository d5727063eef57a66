#include "trireme/comm/choice/measure.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/testing/run_ranks.h"

namespace trireme {
namespace {

TEST(Measure, EveryCollectiveOnEveryRankCountEvenWhereAPartIsEmpty) {
  for (const int size : {1, 2, 3, 5}) {
    for (const comm::OpKind kind : comm::measurable()) {
      testing::run_ranks(size, [&](testing::RankContext& rank) {
        const auto figures =
            comm::measure(*rank.world, {.kind = kind, .sizes = {8, 4096}, .seconds = 1e-9});
        ASSERT_EQ(figures.size(), 2u);
        EXPECT_EQ(figures[0].bytes, 8u);
        EXPECT_EQ(figures[1].bytes, 4096u);
      });
    }
  }
}

TEST(Measure, AnUnknownCollectiveIsRefusedWithThoseThereAre) {
  try {
    comm::measurable_kind("all_reduze");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.advice().find("all_reduce, "), std::string::npos) << error.advice();
  }
}

}  // namespace
}  // namespace trireme
