// Which address a rank listens on, and the text form of endpoints.
#include "trireme/net/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"

namespace trireme::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<InterfaceAddress> kHost = {{"lo", "127.0.0.1"},    {"eth0", "10.1.2.3"},
                                             {"ib0", "192.168.7.9"}, {"lo", "::1"},
                                             {"eth0", "fd00:1::3"},  {"wg0", "fd77::5"}};

TEST(Interfaces, AreChosenByName) {
  EXPECT_EQ(choose_address(kHost, "ib0", false), "192.168.7.9");
  EXPECT_EQ(choose_address(kHost, "eth0", false), "10.1.2.3");
  EXPECT_EQ(choose_address(kHost, "eth0", true), "fd00:1::3");
  EXPECT_EQ(choose_address(kHost, "ib0", true), "192.168.7.9");  // ib0 has only this one
  EXPECT_EQ(choose_address(kHost, "wg0", false), "fd77::5");
}

TEST(Interfaces, AreChosenBySubnet) {
  EXPECT_EQ(choose_address(kHost, "192.168.0.0/16", false), "192.168.7.9");
  EXPECT_EQ(choose_address(kHost, "10.1.2.0/30", false), "10.1.2.3");
  EXPECT_EQ(choose_address(kHost, "fd70::/12", false), "fd77::5");
  EXPECT_EQ(choose_address(kHost, "10.1.2.3/32", true), "10.1.2.3");
  EXPECT_THROW(choose_address(kHost, "10.1.2.4/30", false), ConfigError);
  EXPECT_THROW(choose_address(kHost, "fd78::/16", false), ConfigError);
}

TEST(Interfaces, AWrongNameListsWhatThereIs) {
  for (const char* wrong : {"eth9", "172.16.0.0/12"}) {
    try {
      choose_address(kHost, wrong, false);
      FAIL() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(wrong), HasSubstr("eth0 10.1.2.3"),
                                      HasSubstr("wg0 fd77::5"), HasSubstr("TRIREME_COMM")));
    }
  }
  for (const char* wrong : {"10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "10.0.0.0/x", "fd00::/129"}) {
    EXPECT_THROW(choose_address(kHost, wrong, false), ConfigError) << wrong;
  }
}

TEST(Interfaces, LoopbackIsHere) {
  EXPECT_EQ(choose_address(interfaces(), "lo", false), "127.0.0.1");
}

TEST(Endpoints, AreWrittenAndRead) {
  for (const char* text : {"10.0.0.1:4000", "[fd00::1]:4000", "host.example:1", "[::1]:65535"}) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(to_string(*endpoint), text);
  }
  EXPECT_EQ(parse_endpoint("[fd00::1]:4000")->host, "fd00::1");
  EXPECT_EQ(to_string({"[::1]", 5}), "[::1]:5");
  for (const char* wrong : {"", "host", ":4000", "host:", "host:0", "host:65536", "::1:4000",
                            "[::1]", "[host]:1", "host:12x"}) {
    EXPECT_FALSE(parse_endpoint(wrong)) << wrong;
  }
}

TEST(Endpoints, LoopbackIsKnown) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"10.0.0.1", "fd00::1", "0.0.0.0", "::", "127.example.com"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace trireme::net
