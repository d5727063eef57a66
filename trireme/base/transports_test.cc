#include "trireme/base/transports.h"

#include <gtest/gtest.h>

namespace trireme::transports_test {
namespace {

TEST(Transports, AreFoundByName) {
  ASSERT_NE(find_transport("shm"), nullptr);
  EXPECT_LT(find_transport("shm")->latency, find_transport("tcp")->latency);
  EXPECT_EQ(find_transport("auto"), nullptr);
  EXPECT_TRUE(maps_within_host("auto"));
  EXPECT_FALSE(maps_within_host("tcp"));
  EXPECT_FALSE(maps_within_host("pigeon"));
}

TEST(Transports, AreListedForPeople) {
  const auto choices = transport_choices({"sim"});
  EXPECT_EQ(choices.front(), "auto");
  EXPECT_EQ(choices.back(), "sim");
  EXPECT_EQ(one_of({"auto", "shm", "sim"}), "auto, shm or sim");
}

}  // namespace
}  // namespace trireme::transports_test
