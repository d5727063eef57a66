// Connecting a group: addresses, secrets, epochs, and missing ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "suite.h"
#include "trireme/base/error.h"
#include "trireme/net/socket.h"
#include "trireme/net/transport.h"

namespace trireme::conformance {
namespace {

using ::testing::HasSubstr;

// Connects two ranks with different options; returns the exceptions that they threw.
template <class Connect, class Change>
std::vector<std::exception_ptr> connect_two(const Connect& connect, const Change& change) {
  std::vector<std::exception_ptr> errors(2);
  run_threads(
      2, [](Rank&) {},
      [&](const auto& waiter, net::ConnectOptions options, const auto& exchange) {
        options.timeout = 1s;
        change(options);
        try {
          return connect(waiter, options, exchange);
        } catch (...) {
          errors[static_cast<std::size_t>(options.rank)] = std::current_exception();
          return std::shared_ptr<net::Transport>();
        }
      });
  return errors;
}

// The connected TCP sockets of this process over IPv4 or IPv6, in the order in which they were opened.
std::vector<int> tcp_sockets(sa_family_t family = AF_INET) {
  std::vector<int> sockets;
  for (int socket = 3; socket < 1024; ++socket) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    const int found = getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length);
    if (found == 0 && peer.ss_family == family) sockets.push_back(socket);
  }
  return sockets;
}

TEST(Connect, TcpOverIpv6) {
  run_threads(
      3,
      [](Rank& rank) {
        rank.barrier();
        EXPECT_EQ(tcp_sockets(AF_INET6).size(), 3u * 2 * 2);
        EXPECT_TRUE(tcp_sockets(AF_INET).empty());
        rank.barrier();
      },
      [](const auto& waiter, net::ConnectOptions options, const auto& exchange) {
        options.host = "::1";
        options.sockets = 2;
        return net::connect_tcp(waiter, options, exchange);
      });
}

// A lost peer is noticed while nobody sends: TCP_USER_TIMEOUT would override the keepalive (tcp(7)). A
// peer in user code may not read for as long as it stays there, and is not cut off.
TEST(Connect, SocketsAreKeptAliveAndPatient) {
  run_threads(
      2,
      [](Rank& rank) {
        rank.barrier();
        if (rank.rank == 1) return rank.barrier();
        const auto value_of = [](int socket, int level, int option) {
          int value = -1;
          socklen_t length = sizeof value;
          getsockopt(socket, level, option, &value, &length);
          return value;
        };
        const auto sockets = tcp_sockets();
        EXPECT_EQ(sockets.size(), 4u);
        for (const int socket : sockets) {
          EXPECT_EQ(value_of(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
          EXPECT_EQ(value_of(socket, IPPROTO_TCP, TCP_KEEPIDLE), 10);
          EXPECT_EQ(value_of(socket, IPPROTO_TCP, TCP_KEEPINTVL), 5);
          EXPECT_EQ(value_of(socket, IPPROTO_TCP, TCP_KEEPCNT), 3);
          EXPECT_EQ(value_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
          EXPECT_EQ(value_of(socket, IPPROTO_TCP, TCP_NODELAY), 1);
        }
        rank.barrier();
      },
      [](const auto& waiter, net::ConnectOptions options, const auto& exchange) {
        options.sockets = 2;
        return net::connect_tcp(waiter, options, exchange);
      });
}

class OneOfSeveral : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sockets, OneOfSeveral, ::testing::Range(std::size_t{0}, std::size_t{6}));

// Two ranks with three sockets between them have six ends. If any end dies, both ranks lose the
// peer, also in the middle of a large message, which takes 0.4 s at that rate.
TEST_P(OneOfSeveral, ThatDiesLosesThePeer) {
  for (const bool busy : {false, true}) {
    run_threads(
        2,
        [&](Rank& rank) {
          rank.barrier();
          Bytes large(busy ? 64 << 20 : 8), in(large.size());
          const Work received = rank.recv(1 - rank.rank, 1, in);
          const Work sent = busy ? rank.send(1 - rank.rank, 1, large) : Work();
          if (rank.rank == 0) {
            const auto sockets = tcp_sockets();
            ASSERT_EQ(sockets.size(), 6u);
            shutdown(sockets[GetParam()], SHUT_RDWR);
          }
          EXPECT_THROW(received.wait(kSoon), PeerLost);
          EXPECT_THROW(rank.recv(1 - rank.rank, 2, in).wait(kSoon), PeerLost);
        },
        [](const auto& waiter, net::ConnectOptions options, const auto& exchange) {
          options.sockets = 3;
          options.rate = 50'000'000;
          return net::connect_tcp(waiter, options, exchange);
        });
  }
}

TEST(Connect, AnotherNumberOfSocketsIsRefusedWithBoth) {
  const auto errors =
      connect_two(net::connect_tcp, [](auto& options) { options.sockets = 1 + options.rank; });
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(errors[static_cast<std::size_t>(rank)]);
    const auto failure = describe(errors[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(failure.exit_code, 2);
    EXPECT_THAT(failure.sentence,
                HasSubstr(rank == 0 ? "has 1 sockets a pair of ranks, rank 1 has 2"
                                    : "has 2 sockets a pair of ranks, rank 0 has 1"));
  }
}

TEST(Connect, AWrongSecretIsRefused) {
  for (const bool tcp : {false, true}) {
    const auto errors = connect_two(tcp ? net::connect_tcp : net::connect_shm, [](auto& options) {
      if (options.rank == 1) options.secret = "another";
    });
    ASSERT_TRUE(errors[0] && errors[1]);
    EXPECT_EQ(describe(errors[1]).exit_code, static_cast<int>(ExitCode::Unauthenticated));
    EXPECT_EQ(describe(errors[0]).exit_code, static_cast<int>(ExitCode::Timeout));
    EXPECT_THAT(describe(errors[0]).sentence, HasSubstr("rank 1"));
  }
}

TEST(Connect, AnotherEpochIsRefused) {
  const auto errors = connect_two(net::connect_shm, [](auto& options) {
    options.epoch = static_cast<std::uint32_t>(options.rank);
  });
  ASSERT_TRUE(errors[1]);
  EXPECT_EQ(describe(errors[1]).exit_code, static_cast<int>(ExitCode::Refused));
  EXPECT_THAT(describe(errors[1]).sentence, HasSubstr("epoch"));
}

TEST(Connect, AnAddressThatNobodyListensOnIsNamedWithBrackets) {
  const auto waiter = RealWaiter::make();
  std::string address;
  { address = net::listen_tcp("::1").address; }
  EXPECT_THAT(address, ::testing::StartsWith("tcp [::1]:"));
  try {
    net::dial(*waiter, address, waiter->now() + 5s);
    FAIL();
  } catch (const PeerLost& error) {
    EXPECT_THAT(error.what(), HasSubstr(address));
  }
}

TEST(Connect, ARankThatDoesNotComeIsNamed) {
  const auto waiter = RealWaiter::make();
  net::ConnectOptions options;
  options.size = 3;
  options.timeout = 50ms;
  try {
    (void)net::connect_tcp(
        waiter, options, [](const std::string& mine) { return std::vector<std::string>(3, mine); });
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1, rank 2"));
  }
}

TEST(Connect, ANetworkAddressNeedsASecret) {
  net::ConnectOptions options;
  options.size = 2;
  options.host = "0.0.0.0";
  EXPECT_THROW(
      (void)net::connect_tcp(RealWaiter::make(), options,
                             [](const std::string&) { return std::vector<std::string>(); }),
      ConfigError);
}

}  // namespace
}  // namespace trireme::conformance
