#include "trireme/train/time_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::inline v0::train {
namespace {

using namespace std::chrono_literals;

TEST(TimeLimit, ReadsNumbersWithUnits) {
  EXPECT_EQ(parse_time_limit(""), std::nullopt);
  EXPECT_EQ(parse_time_limit("11h50m"), 11h + 50min);
  EXPECT_EQ(parse_time_limit("90s"), 90s);
  EXPECT_EQ(parse_time_limit("1d2h3min4s5ms"), 26h + 3min + 4s + 5ms);
  EXPECT_EQ(parse_time_limit("1.5h"), 90min);
  EXPECT_EQ(parse_time_limit("0d20m"), 20min);
}

TEST(TimeLimit, RefusesWhatIsNoDuration) {
  for (const char* text : {"90", "11:50", "h", "1h 5m", "5m1h", "1h1h", "-1h", "1e3h", "0s", "inf",
                           "nanh", "1x", "1h50", "99999999999d", "1hour"}) {
    try {
      parse_time_limit(text);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("train.max_time = \"" + std::string(text)));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("\"11h50m\""));
    }
  }
}

}  // namespace
}  // namespace trireme::inline v0::train
