#include "trireme/rendezvous/places.h"

#include <gtest/gtest.h>

#include "trireme/net/endpoint.h"
#include "trireme/net/interfaces.h"
#include "trireme/rendezvous/own_address.h"

namespace trireme::rendezvous {
namespace {

TEST(OwnAddress, IsOnTheWayToTheCoordinator) {
  const auto nothing = [](const char*) { return std::nullopt; };
  EXPECT_EQ(own_address("127.0.0.1:4000", "", nothing), "127.0.0.1");
  EXPECT_EQ(own_address("[::1]:4000", "", nothing), "::1");
  EXPECT_EQ(own_address("no such host:4000", "", nothing), "127.0.0.1");
  const auto given = [](const char*) { return std::optional<std::string>("10.1.2.3"); };
  EXPECT_EQ(own_address("127.0.0.1:4000", "", given), "10.1.2.3");
}

TEST(OwnAddress, IsLookedUpAgainIfTheNameServerIsAwayForAMoment) {
  const auto nothing = [](const char*) { return std::nullopt; };
  int times = 0, away = 3;
  const LookUp look_up = [&](const char* host, const char* port, const addrinfo* hints,
                             addrinfo** found) {
    EXPECT_STREQ(host, "coordinator");
    return ++times <= away ? EAI_AGAIN : getaddrinfo("::1", port, hints, found);
  };
  EXPECT_EQ(own_address("coordinator:4000", "", nothing, look_up), "::1");
  EXPECT_EQ(times, 4);
  away = 1'000'000;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(own_address("coordinator:4000", "", nothing, look_up), "127.0.0.1");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("host coordinator is not known"),
            std::string::npos);
}

TEST(AddressForOthers, IsNotLoopbackWhereThereIsAnother) {
  const auto nothing = [](const char*) { return std::nullopt; };
  std::string other = "127.0.0.1";
  for (const net::InterfaceAddress& one : net::interfaces()) {
    if (net::is_loopback(one.address)) continue;
    other = one.address;
    // The address by which others know this host, even if no route leads out of its network.
    EXPECT_EQ(address_for_others(other, "", nothing), other);
  }
  EXPECT_EQ(net::is_loopback(address_for_others("", "", nothing)), net::is_loopback(other));
  EXPECT_EQ(net::is_loopback(address_for_others("127.0.0.1", "", nothing)),
            net::is_loopback(other));
  const auto given = [](const char*) { return std::optional<std::string>("10.1.2.3"); };
  EXPECT_EQ(address_for_others("node07", "", given), "10.1.2.3");
}

using Ranks = std::vector<int>;

TEST(Places, OneHost) {
  const Places places = places_of({"a", "a", "a"}, 1);
  EXPECT_EQ(places.local_rank, 1);
  EXPECT_EQ(places.local_size, 3);
  EXPECT_EQ(places.host_rank, 0);
  EXPECT_EQ(places.num_hosts, 1);
  EXPECT_EQ(places.host, (Ranks{0, 1, 2}));
  EXPECT_EQ(places.across, (Ranks{1}));
}

TEST(Places, HostsOfDifferentSizesInAnyOrder) {
  const std::vector<std::string> hosts = {"b", "a", "b", "c", "b"};
  const Places first = places_of(hosts, 0), last = places_of(hosts, 4), other = places_of(hosts, 3);
  EXPECT_EQ(first.across, (Ranks{0, 1, 3}));
  EXPECT_EQ(last.local_rank, 2);
  EXPECT_EQ(last.host, (Ranks{0, 2, 4}));
  EXPECT_EQ(last.across, (Ranks{4}));
  EXPECT_EQ(other.host_rank, 2);
  EXPECT_EQ(other.local_size, 1);
  EXPECT_EQ(other.num_hosts, 3);
}

}  // namespace
}  // namespace trireme::rendezvous
