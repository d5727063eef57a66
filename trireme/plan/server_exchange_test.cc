#include <gtest/gtest.h>

#include "trireme/plan/communication.h"

namespace trireme::server_exchange_test {
namespace {

constexpr plan::LinkCost kLink{25e-6, 1e-9, 0};

TEST(ServerExchange, OneWorkerSendsAndGetsAllBytes) {
  for (const int servers : {1, 2, 7})
    EXPECT_DOUBLE_EQ(plan::server_exchange_seconds(kLink, 1, servers, 1e6), 100e-6 + 2e-3);
}

TEST(ServerExchange, AServersLinkCarriesTheBytesOfAllWorkers) {
  EXPECT_NEAR(plan::server_exchange_seconds(kLink, 64, 1, 1e6), 100e-6 + 128e-3, 1e-9);
  EXPECT_NEAR(plan::server_exchange_seconds(kLink, 64, 4, 1e6), 100e-6 + 33.5e-3, 1e-9);
}

TEST(ServerExchange, AsManyServersAsWorkersTakeTwiceARing) {
  const double ring = 2 * 63 / 64.0 * 1e-3;
  EXPECT_NEAR(plan::server_exchange_seconds({0, 1e-9, 0}, 64, 64, 1e6), 2 * ring, 0.02 * ring);
}

TEST(ServerExchange, ServersShareTheAdditions) {
  const plan::LinkCost adds{0, 0, 1e-10};
  EXPECT_DOUBLE_EQ(plan::server_exchange_seconds(adds, 5, 1, 1e6), 4e-4);
  EXPECT_DOUBLE_EQ(plan::server_exchange_seconds(adds, 5, 2, 1e6), 2e-4);
}

}  // namespace
}  // namespace trireme::server_exchange_test
