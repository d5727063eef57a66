#include "trireme/plan/tuning.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::inline v0::plan {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::Optional;
using testing::ThrowsMessage;

Tuning measured() {
  Tuning tuning;
  tuning.machine = "a \"quoted\" machine";
  tuning.links["tcp"] = {20e-6, 5e-10, 1e-10};
  tuning.add({"all_reduce", "ring", "tcp", 4, 1 << 20, 1e-3});
  tuning.add({"all_reduce", "ring", "tcp", 4, 1 << 10, 1e-4});
  tuning.add({"all_reduce", "tree", "tcp", 4, 1 << 10, 5e-5});
  return tuning;
}

TEST(Tuning, ComesBackFromItsOwnText) {
  const Tuning tuning = measured();
  const Tuning again = Tuning::from_toml(tuning.to_toml(), "tuning.toml");
  EXPECT_EQ(again.to_toml(), tuning.to_toml());
  EXPECT_EQ(again.machine, tuning.machine);
  EXPECT_EQ(again.measurements().size(), 3u);
  EXPECT_DOUBLE_EQ(again.links.at("tcp").alpha, 20e-6);
}

TEST(Tuning, InterpolatesBetweenSizesAndScalesBeyondTheLargest) {
  const Tuning tuning = measured();
  const auto ring = [&](std::size_t bytes) {
    return tuning.seconds("all_reduce", "ring", "tcp", 4, bytes);
  };
  EXPECT_THAT(ring(1 << 10), Optional(DoubleNear(1e-4, 1e-9)));
  EXPECT_THAT(ring(1 << 15), Optional(DoubleNear(std::sqrt(1e-4 * 1e-3), 1e-9)));
  EXPECT_THAT(ring(1 << 21), Optional(DoubleNear(2e-3, 1e-9)));
  EXPECT_THAT(ring(8), Optional(DoubleNear(1e-4, 1e-9)));
  EXPECT_EQ(tuning.seconds("all_reduce", "ring", "tcp", 3, 1 << 10), std::nullopt);
  EXPECT_EQ(tuning.seconds("all_reduce", "ring", "shm", 4, 1 << 10), std::nullopt);
}

TEST(Tuning, TakesTheLaterOfTwoMeasurements) {
  Tuning tuning = measured();
  tuning.add({"all_reduce", "ring", "tcp", 4, 1 << 10, 7e-4});
  EXPECT_EQ(tuning.measurements().size(), 3u);
  EXPECT_THAT(tuning.seconds("all_reduce", "ring", "tcp", 4, 1 << 10),
              Optional(DoubleNear(7e-4, 1e-9)));
}

TEST(Tuning, CostIsMessagesBytesAndAdditions) {
  const CostShape shape{.rounds = 2, .messages = 2, .sent = 1.5, .added = 0.5};
  EXPECT_DOUBLE_EQ(shape.seconds({1e-6, 1e-9, 1e-10}, 1000), 2e-6 + 1000 * (1.5e-9 + 0.5e-10));
}

TEST(Tuning, RefusesABrokenFileByLine) {
  const auto read = [](std::string text) { return [=] { Tuning::from_toml(text, "t.toml"); }; };
  EXPECT_THAT(read("version = 1\nmeasured = [\n  {collective = 3}\n]\n"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("t.toml:3"), HasSubstr("collective"))));
  EXPECT_THAT(read("version = 1\n[link.tcp]\nalpha = -1.0\nbeta = 0.0\ngamma = 0.0\n"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("t.toml:2"), HasSubstr("alpha"))));
  EXPECT_THAT(read("version = 1\nmeasured = [{collective = 'all_reduce', algorithm = 'ring', "
                   "transport = 'tcp', ranks = 4294967298, bytes = 1, seconds = 1.0}]\n"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("t.toml:2"), HasSubstr("ranks"))));
  EXPECT_THAT(read("version = 9\n"), ThrowsMessage<ConfigError>(HasSubstr("version 9")));
  EXPECT_THAT(read("version = \n"), ThrowsMessage<ConfigError>(HasSubstr("t.toml:1")));
}

}  // namespace
}  // namespace trireme::inline v0::plan
