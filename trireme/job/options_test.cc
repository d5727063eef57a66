#include "trireme/job/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"

namespace trireme::job {
namespace {

rendezvous::Getenv from(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Options, TheEnvironmentFillsWhatTheProgramLeftOpen) {
  const auto get = from({{"TRIREME_TIMEOUT", "2.5"}, {"TRIREME_COMM_TRANSPORT", "tcp"}});
  JobOptions options = resolve_options({}, get);
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(options.transport, "tcp");
  options = resolve_options({.transport = "shm", .timeout = std::chrono::seconds(7)}, get);
  EXPECT_EQ(options.timeout, std::chrono::seconds(7));
  EXPECT_EQ(options.transport, "shm");
  EXPECT_EQ(options.interface, "");
  EXPECT_GT(resolve_options({}, from({{"TRIREME_TIMEOUT", "1e-12"}})).timeout, Duration::zero());
  const auto other = from({{"TRIREME_COMM_INTERFACE", "eth1"}});
  EXPECT_EQ(resolve_options({}, other).interface, "eth1");
  EXPECT_EQ(resolve_options({.interface = "10.0.0.0/8"}, other).interface, "10.0.0.0/8");
}

TEST(Options, RefusesNonsense) {
  EXPECT_THROW(resolve_options({}, from({{"TRIREME_TIMEOUT", "soon"}})), ConfigError);
  EXPECT_THROW(resolve_options({}, from({{"TRIREME_TIMEOUT", "-1"}})), ConfigError);
  EXPECT_THAT(
      [] {
        resolve_options({}, from({{"TRIREME_TIMEOUT_USER_CODE", "late"}}));
      },
      ::testing::ThrowsMessage<ConfigError>(
          ::testing::HasSubstr("For example: TRIREME_TIMEOUT_USER_CODE=30")));
  EXPECT_THROW(resolve_options({}, from({{"TRIREME_COMM_TRANSPORT", "pigeon"}})), ConfigError);
  EXPECT_EQ(resolve_options({}, from({{"TRIREME_COMM_TRANSPORT", "nccl"}})).transport, "nccl");
}

TEST(Options, SocketsAreANumberInBounds) {
  EXPECT_EQ(resolve_options({}, from({})).sockets, 1);
  EXPECT_EQ(resolve_options({}, from({{"TRIREME_COMM_SOCKETS", "4"}})).sockets, 4);
  EXPECT_EQ(resolve_options({.sockets = 2}, from({{"TRIREME_COMM_SOCKETS", "4"}})).sockets, 2);
  for (const char* wrong : {"0", "65", "-1", "two", "2x"}) {
    EXPECT_THROW(resolve_options({}, from({{"TRIREME_COMM_SOCKETS", wrong}})), ConfigError)
        << wrong;
  }
  EXPECT_THROW(resolve_options({.sockets = 0}, from({})), ConfigError);
}

TEST(Options, ARateIsANumberOfBytes) {
  EXPECT_EQ(resolve_options({}, from({{"TRIREME_COMM_RATE", "1e9"}})).rate, 1'000'000'000);
  EXPECT_EQ(resolve_options({.rate = 5}, from({{"TRIREME_COMM_RATE", "1e9"}})).rate, 5);
  for (const char* wrong : {"1GB", "-1", "1e300"})
    EXPECT_THROW(resolve_options({}, from({{"TRIREME_COMM_RATE", wrong}})), ConfigError) << wrong;
}

TEST(Options, OmpNumThreadsWinsOverTheLaunchersShare) {
  rendezvous::RankEnvironment rank;
  rank.cores = 3;
  EXPECT_EQ(resolve_cores(rank, from({})), 3);
  EXPECT_EQ(resolve_cores(rank, from({{"OMP_NUM_THREADS", "5"}})), 5);
  for (const char* wrong : {"65537", "4294967297", "99999999999999999999"})
    EXPECT_THROW(resolve_cores(rank, from({{"OMP_NUM_THREADS", wrong}})), ConfigError) << wrong;
  rank.cores = 0;
  EXPECT_GE(resolve_cores(rank, from({})), 1);
}

}  // namespace
}  // namespace trireme::job
