// Strangers connect to a job's ports while it joins and while it runs: they cause no allocation,
// and the job does not notice them.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "tests/chaos/exchange.h"
#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/job.h"
#include "trireme/net/channel.h"
#include "trireme/net/connect.h"
#include "trireme/net/socket.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;
using testing::RunningProcesses;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

// They send nothing, noise, other protocols, or Trireme's own messages without the secret.
std::vector<Bytes> phrases() {
  std::mt19937_64 random(5);
  std::vector<Bytes> all = {
      {},
      bytes_of("\n"),
      bytes_of("GET / HTTP/1.1\r\nHost: trireme\r\n\r\n"),
      bytes_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\x00\x7f\xff\xff\xff"),
  };
  Bytes noise(300'000);
  for (auto& byte : noise) byte = static_cast<std::byte>(random());
  all.push_back(noise);
  net::HandshakeState hello(true, {0, 1, 3, 2}, "a guess at the secret");
  Bytes guess = hello.take_output();
  all.push_back({guess.begin(), guess.begin() + 40});
  guess.resize(96);
  all.push_back(guess);
  const std::uint64_t oversized[] = {net::kFrameMagic, ~std::uint64_t{0}};
  Bytes frame = guess;
  const auto head = std::as_bytes(std::span(oversized));
  frame.insert(frame.end(), head.begin(), head.end());
  all.push_back(frame);
  return all;
}

// Connects to one port from the line that names it until the test ends.
class Strangers {
 public:
  /// Creates the file `enough` when 16 have connected.
  explicit Strangers(std::string enough = {}) : enough_(std::move(enough)) {}
  ~Strangers() {
    join();
    if (!enough_.empty()) std::filesystem::remove(enough_);
  }
  void come_to(const std::string& address) {
    std::lock_guard lock(mutex_);
    threads_.emplace_back([this, address] { talk(address); });
  }
  int join() {
    std::lock_guard lock(mutex_);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return talks_;
  }

 private:
  void talk(const std::string& address) {
    const auto waiter = RealWaiter::make();
    std::vector<Descriptor> open;  // keep the connections open
    for (int round = 0; round < 4; ++round) {
      for (const Bytes& phrase : phrases()) {
        try {
          open.push_back(net::dial(*waiter, address, waiter->now() + seconds(1)));
          (void)!::send(open.back().get(), phrase.data(), phrase.size(),
                        MSG_NOSIGNAL | MSG_DONTWAIT);
          if (++talks_ == 16 && !enough_.empty()) std::ofstream(enough_) << "\n";
        } catch (const Error&) {  // the port is closed: all ranks are connected
          return;
        }
      }
    }
  }
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::atomic<int> talks_{0};
  const std::string enough_;
};

TRIREME_PROCESS(joins) {
  Job job(argc, argv);
  const net::ConnectOptions connect{.rank = job.rank(), .size = job.size(), .secret = "strangers"};
  const std::int64_t before = observe::memory_bytes();
  TimePoint start{};
  const auto exchange = [&](const std::string& mine) {
    auto all = test::exchange_over(job.world())(mine);
    std::printf("%s\n", mine.c_str());
    // The last rank is late: the others' ports stay open until enough strangers have connected.
    for (int i = 0; job.rank() == job.size() - 1 && !std::filesystem::exists(argv[1]); ++i) {
      if (i > 2000) throw TimeoutError("no stranger came");
      Event().wait(milliseconds(10));
    }
    start = steady_now();
    return all;
  };
  comm::Communicator group(net::connect_tcp(job.waiter(), connect, exchange), {});
  if (steady_now() - start > seconds(10)) return 3;  // as long as one silent stranger may stay
  if (observe::memory_bytes() - before > 64 << 20) return 1;
  std::vector<float> x(1000, 1.0f);
  for (int i = 0; i < 100; ++i) all_reduce(group, x, Mean);
  return x[0] == 1.0f ? 0 : 1;
}

TEST(Strangers, DoNotDisturbAJoin) {
  const std::string enough = ::testing::TempDir() + "trireme-strangers-" + std::to_string(getpid());
  Strangers strangers(enough);
  ProcessOptions options;
  options.arguments = {enough};
  options.on_line = [&](int rank, std::string_view line, const RunningProcesses&) {
    if (rank < 2 && line.rfind("tcp ", 0) == 0) strangers.come_to(std::string(line));
  };
  const ProcessRun run = run_processes(3, "joins", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_GE(strangers.join(), 16) << "nobody came";
}

TRIREME_PROCESS(runs) {
  Job job(argc, argv);
  if (job.rank() == 0) std::printf("%s\n", std::getenv("TRIREME_COORDINATOR"));
  std::vector<float> x(1000, 1.0f);
  const TimePoint end = steady_now() + milliseconds(700);
  for (bool more = true; more; more = x[0] < 1) {
    x.assign(1000, steady_now() < end ? 0 : 1);
    all_reduce(job.world(), x, Min);
  }
  return 0;
}

TEST(Strangers, DoNotDisturbTheCoordinatorOfARunningJob) {
  Strangers strangers;
  ProcessOptions options;
  options.timeout = seconds(2);
  options.on_line = [&](int, std::string_view line, const RunningProcesses&) {
    strangers.come_to("tcp " + std::string(line));
  };
  const ProcessRun run = run_processes(2, "runs", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_GE(strangers.join(), 1) << "nobody came";
}

// A coordinator with few descriptors, before its rank has joined. argv[1]: a file that exists when
// all strangers have connected.
TRIREME_PROCESS(crowded) {
  const rlimit few{200, 200};
  setrlimit(RLIMIT_NOFILE, &few);
  const std::string secret(32, 's');
  rendezvous::Coordinator coordinator({.roles = {.workers = 1}, .secret = secret});
  const std::int64_t before = observe::memory_bytes();
  std::printf("%s\n", coordinator.endpoint().c_str());
  while (!std::filesystem::exists(argv[1])) Event().wait(milliseconds(5));
  rendezvous::CoordinatorClient client(
      {.endpoint = coordinator.endpoint(), .secret = secret, .timeout = seconds(20)});
  client.heartbeat({}, seconds(20));
  const std::vector<Descriptor> own = [] {  // keeps some for the job
    std::vector<Descriptor> some;
    for (int i = 0; i < 50; ++i) some.emplace_back(dup(0));
    return some;
  }();
  for (const Descriptor& one : own) {
    if (!one) return 4;
  }
  return observe::memory_bytes() - before > 64 << 20 ? 3 : 0;
}

// Silent ones, and ones that send what a rank sends to gRPC, 1 MB each.
TEST(Strangers, InCrowdsKeepNoRankOutOfTheCoordinator) {
  constexpr int kStrangers = 1500;
  const rlimit many{4096, 4096};
  setrlimit(RLIMIT_NOFILE, &many);
  const std::string all_here = ::testing::TempDir() + "trireme-crowd-" + std::to_string(getpid());
  std::vector<Descriptor> open;
  const Bytes speech(1 << 20, std::byte{'x'});
  ProcessOptions options;
  options.arguments = {all_here};
  options.on_line = [&](int, std::string_view line, const RunningProcesses&) {
    const auto waiter = RealWaiter::make();
    while (open.size() < kStrangers) {
      open.push_back(net::dial(*waiter, "tcp " + std::string(line), waiter->now() + seconds(20)));
      if (open.size() % 2 == 0) {
        (void)!::send(open.back().get(), speech.data(), speech.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
    std::ofstream(all_here) << "\n";
  };
  const ProcessRun run = run_processes(1, "crowded", options);
  std::filesystem::remove(all_here);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_EQ(open.size(), static_cast<std::size_t>(kStrangers));
}

}  // namespace
}  // namespace trireme
