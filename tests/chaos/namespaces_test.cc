// Four "hosts" with two ranks each: network namespaces connected by a bridge, so that a cable can
// be cut. Needs root and `ip netns`; CMake registers it only if a namespace can be made.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/chaos/shell.h"
#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/launch/launch.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kHosts = 4, kPerHost = 2, kAll = kHosts * kPerHost;

// Two runs at once on one machine need different names and addresses.
class Bridge {
 public:
  Bridge() {
    run("ip link add " + bridge() + " type bridge");
    run("ip addr add " + address(254) + "/24 dev " + bridge());
    run("ip link set " + bridge() + " up");
    for (int host = 0; host < kHosts; ++host) {
      run("ip netns add " + name(host));
      run("ip link add " + cable(host) + " type veth peer name eth0 netns " + name(host));
      run("ip link set " + cable(host) + " master " + bridge() + " up");
      const std::string inside = "ip -n " + name(host);
      run(inside + " addr add " + address(host + 1) + "/24 dev eth0");
      run(inside + " link set eth0 up");
      run(inside + " link set lo up");
    }
  }
  ~Bridge() {
    for (int host = 0; host < kHosts; ++host) {
      run("ip link del " + cable(host));  // the kernel removes the namespace a little later
      run("ip netns del " + name(host));
    }
    run("ip link del " + bridge());
  }
  static std::string name(int host) { return prefix() + "h" + std::to_string(host); }
  static std::string address(int last) {
    const int number = static_cast<int>(getpid());
    return "10." + std::to_string(190 + number / 250 % 60) + "." + std::to_string(number % 250) +
           "." + std::to_string(last);
  }
  void cut(int host) { run("ip link set " + cable(host) + " down"); }
  void mend(int host) { run("ip link set " + cable(host) + " up"); }

  static std::string prefix() { return "tr" + std::to_string(getpid() % 100000); }

 private:
  static std::string bridge() { return prefix() + "b"; }
  static std::string cable(int host) { return prefix() + "c" + std::to_string(host); }
  static void run(const std::string& command) {
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
};

struct Outcome {
  launch::LaunchResult result;
  std::string out[kAll], err[kAll];
  std::string describe() const {
    std::string text =
        "exit code " + std::to_string(result.exit_code) + ", last line: " + result.last_line + "\n";
    for (int rank = 0; rank < kAll; ++rank) {
      text += "--- rank " + std::to_string(rank) + ", exit code " +
              std::to_string(result.exit_codes[static_cast<std::size_t>(rank)]) + "\n" + out[rank] +
              err[rank];
    }
    return text;
  }
};

class Namespaces : public ::testing::TestWithParam<std::string> {
 protected:
  // The launcher is outside of them; every rank reaches it over its host's cable.
  Outcome run(const std::string& body, Duration timeout,
              const std::function<void(int rank, std::string_view line)>& on_line = nullptr) {
    const std::string secret = ::testing::TempDir() + Bridge::prefix() + ".secret";
    std::ofstream(secret) << "a secret of these namespaces alone";
    std::filesystem::permissions(secret, std::filesystem::perms::owner_read);
    setenv("TRIREME_JOB_SECRET_FILE", secret.c_str(), 1);
    testing::ProcessOptions processes;
    processes.timeout = timeout;
    processes.transport = GetParam();
    processes.time_limit = seconds(60);
    auto options = testing::process_launch_options(kAll, body, processes);
    options.command = {
        "sh", "-c",
        "exec ip netns exec " + Bridge::prefix() + "h$((TRIREME_RANK / 2)) \"$0\" \"$@\"",
        options.command.front()};
    options.listen = Bridge::address(254);
    options.handle_signals = false;
    Outcome outcome;
    options.on_line = [&](int rank, bool error, std::string_view line) {
      (error ? outcome.err : outcome.out)[rank].append(line).append("\n");
      if (on_line) on_line(rank, line);
    };
    outcome.result = launch::launch(options);
    unsetenv("TRIREME_JOB_SECRET_FILE");
    std::filesystem::remove(secret);
    return outcome;
  }

  Bridge network_;
};
INSTANTIATE_TEST_SUITE_P(Transports, Namespaces, ::testing::Values("mixed", "tcp"));

// Makes argv[1] sums, or sums without end.
int sum_on(Job& job, long steps) {
  if (job.num_hosts() != kHosts || job.local_size() != kPerHost) return 3;
  for (long step = 0; steps < 0 || step < steps; ++step) {
    std::vector<float> x(1 << 16, static_cast<float>(job.rank()));
    all_reduce(job.world(), x, Sum, {.label = "bucket 5"});
    if (x[77] != kAll * (kAll - 1) / 2) return 4;
    if (step == 10 && job.rank() == 0) std::printf("running\n");
  }
  std::printf("done\n");
  return 0;
}

void name_host() {
  const int rank = std::atoi(std::getenv("TRIREME_RANK"));
  setenv("TRIREME_HOST", ("host" + std::to_string(rank / kPerHost)).c_str(), 1);
}

TRIREME_PROCESS(some) {
  name_host();
  Job job(argc, argv);
  return sum_on(job, 200);
}

TRIREME_PROCESS(endless) {
  name_host();
  Job job(argc, argv);
  return sum_on(job, -1);
}

TEST_P(Namespaces, FourHostsSum) {
  const Outcome outcome = run("some", seconds(10));
  EXPECT_EQ(outcome.result.exit_code, 0) << outcome.describe();
  for (const std::string& out : outcome.out) EXPECT_NE(out.find("done"), out.npos);
}

TEST_P(Namespaces, ACableCutInAnAllReduceEndsTheJobWithinItsBound) {
  constexpr Duration kTimeout = seconds(2);
  TimePoint cut{};
  const Outcome outcome = run("endless", kTimeout, [&](int, std::string_view line) {
    if (line != "running") return;
    network_.cut(3);
    cut = steady_now();
  });
  ASSERT_NE(cut, TimePoint{}) << outcome.describe();
  // The timeout of silence, one of an unanswered request, and the launcher's wait for lost ranks.
  EXPECT_LT(steady_now() - cut, 2 * kTimeout + seconds(3)) << outcome.describe();
  EXPECT_GE(outcome.result.exit_code, 160) << outcome.describe();
  EXPECT_LE(outcome.result.exit_code, 162) << outcome.describe();
  EXPECT_FALSE(outcome.result.out_of_time) << outcome.describe();
  EXPECT_NE(outcome.result.last_line.find("all_reduce bucket 5"), std::string::npos)
      << outcome.describe();
}

TEST_P(Namespaces, ACableThatIsMendedInTimeIsNotNoticed) {
  const Outcome outcome = run("some", seconds(20), [&](int, std::string_view line) {
    if (line != "running") return;
    network_.cut(2);
    Event().wait(milliseconds(400));
    network_.mend(2);
  });
  EXPECT_EQ(outcome.result.exit_code, 0) << outcome.describe();
}

TRIREME_PROCESS(asks_for_signals) {
  const Job job(argc, argv);
  for (Event never;; never.wait(milliseconds(1))) static_cast<void>(job.stop_signal());
}

// A container's first process. The kernel would drop a signal whose handler is the default one.
TEST(Process1, EndsAtTheSecondSignal) {
  const test::ShellRun run = test::run_shell(
      "TRIREME_TEST_PROCESS=asks_for_signals unshare --pid --fork --kill-child \"$SELF\" & "
      "outer=$!\n"
      "until first=$(cat /proc/$outer/task/$outer/children) && [ -n \"$first\" ]; do :; done\n"
      "while kill -TERM $first 2> /dev/null; do :; done\n"
      "wait $outer");
  EXPECT_EQ(run.code, 143) << run.describe();
}

// In its own namespace with three ports, all of them taken.
TRIREME_PROCESS(no_port_left) {
  (void)argc, (void)argv;
  if (unshare(CLONE_NEWNET) != 0) return 2;
  if (std::system("ip link set lo up") != 0) return 3;
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40001 40003\n";
  std::vector<net::Listener> taken;
  try {
    for (int port = 0; port < 4; ++port) taken.push_back(net::listen_tcp("127.0.0.1"));
    return 4;
  } catch (const ResourceError&) {
  }
  const auto text_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const ResourceError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  std::printf("%s\n", text_of([] { net::listen_tcp("127.0.0.1"); }).c_str());
  std::printf("%s\n",
              text_of([] {
                rendezvous::Coordinator({.roles = {.workers = 1}, .secret = std::string(32, 's')});
              }).c_str());
  std::printf("%s\n", text_of([] { net::listen_tcp("192.0.2.1"); }).c_str());
  return 0;
}

TEST(Ports, AllTakenIsAClearError) {
  const testing::ProcessRun run = testing::run_processes(1, "no_port_left");
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  std::istringstream lines(run.ranks[0].out);
  std::string listener, coordinator, foreign;
  std::getline(lines, listener);
  std::getline(lines, coordinator);
  std::getline(lines, foreign);
  EXPECT_NE(listener.find("Address already in use"), std::string::npos) << run.describe();
  EXPECT_NE(listener.find("Check the limits on descriptors, ports"), std::string::npos);
  EXPECT_NE(coordinator.find("could not listen on 127.0.0.1"), std::string::npos) << run.describe();
  EXPECT_NE(foreign.find("Cannot assign requested address"), std::string::npos) << run.describe();
}

}  // namespace
}  // namespace trireme
