// Two "hosts" with two networks: network namespaces, each with a cable to an IPv4 bridge (eth0) and
// one to an IPv6 bridge (eth1). Needs root and `ip netns`; CMake registers it only if a namespace
// can be made.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "trireme/job.h"
#include "trireme/launch/launch.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::seconds;

constexpr int kLinkedHosts = 2;
constexpr std::size_t kBytes = 8 << 20;

// Two runs at once on one machine need different names and addresses.
std::string prefix() { return "tn" + std::to_string(getpid() % 100000); }
std::string ipv4(int last) {
  const int number = static_cast<int>(getpid());
  return "10." + std::to_string(130 + number / 250 % 60) + "." + std::to_string(number % 250) +
         "." + std::to_string(last);
}
std::string ipv6(int last) {
  char group[8];
  std::snprintf(group, sizeof group, "%x", static_cast<unsigned>(getpid()) & 0xffff);
  return "fd7e:" + std::string(group) + "::" + std::to_string(last);
}

class Networks : public ::testing::Test {
 protected:
  Networks() {
    for (const bool six : {false, true}) {
      const std::string bridge = prefix() + (six ? "s" : "f");
      run("ip link add " + bridge + " type bridge");
      run("ip addr add " + address(six, 254) + " dev " + bridge + (six ? " nodad" : ""));
      run("ip link set " + bridge + " up");
      for (int host = 0; host < kLinkedHosts; ++host) plug(host, six, bridge);
    }
    for (int host = 0; host < kLinkedHosts; ++host) run("ip -n " + name(host) + " link set lo up");
  }
  ~Networks() override {
    for (int host = 0; host < kLinkedHosts; ++host) {
      run("ip link del " + name(host) + "f");
      run("ip link del " + name(host) + "s");
      run("ip netns del " + name(host));
    }
    run("ip link del " + prefix() + "f");
    run("ip link del " + prefix() + "s");
  }

  // One rank per host; the launcher is outside, at `listen`.
  launch::LaunchResult sum(const std::string& listen, const std::string& interface,
                           std::string& lines) {
    const std::string secret = ::testing::TempDir() + prefix() + ".secret";
    std::ofstream(secret) << "a secret of these namespaces alone";
    std::filesystem::permissions(secret, std::filesystem::perms::owner_read);
    setenv("TRIREME_JOB_SECRET_FILE", secret.c_str(), 1);
    auto options = testing::process_launch_options(
        kLinkedHosts, "sums_over_networks",
        {.transport = "tcp", .environment = {"TRIREME_COMM_INTERFACE=" + interface}});
    options.command = {"sh", "-c", "exec ip netns exec " + prefix() + "h$TRIREME_RANK \"$0\"",
                       options.command.front()};
    options.listen = listen;
    options.handle_signals = false;
    options.time_limit = seconds(60);
    options.on_line = [&](int, bool, std::string_view line) { lines.append(line).append("\n"); };
    const auto result = launch::launch(options);
    unsetenv("TRIREME_JOB_SECRET_FILE");
    std::filesystem::remove(secret);
    return result;
  }

 private:
  static std::string name(int host) { return prefix() + "h" + std::to_string(host); }
  static std::string address(bool six, int last) {
    return six ? ipv6(last) + "/64" : ipv4(last) + "/24";
  }
  static void plug(int host, bool six, const std::string& bridge) {
    const std::string cable = name(host) + (six ? "s" : "f"), end = six ? "eth1" : "eth0";
    if (!six) run("ip netns add " + name(host));
    run("ip link add " + cable + " type veth peer name " + end + " netns " + name(host));
    run("ip link set " + cable + " master " + bridge + " up");
    run("ip -n " + name(host) + " addr add " + address(six, host + 1) + " dev " + end +
        (six ? " nodad" : ""));
    run("ip -n " + name(host) + " link set " + end + " up");
  }
  static void run(const std::string& command) {
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
};

std::size_t received(const std::string& interface) {
  std::ifstream devices("/proc/net/dev");
  for (std::string word; devices >> word;) {
    std::size_t bytes = 0;
    if (word == interface + ":" && devices >> bytes) return bytes;
  }
  return 0;
}

TRIREME_PROCESS(sums_over_networks) {
  setenv("TRIREME_HOST", ("host" + std::string(std::getenv("TRIREME_RANK"))).c_str(), 1);
  const std::size_t before[] = {received("eth0"), received("eth1")};
  Job job(argc, argv);
  std::vector<float> x(kBytes / sizeof(float), 1);
  all_reduce(job.world(), x, Sum);
  if (x != std::vector<float>(x.size(), job.size())) return 4;
  std::string way;
  for (const int one : {0, 1}) {
    const std::size_t bytes = received("eth" + std::to_string(one)) - before[one];
    if (bytes >= kBytes / 2) way += " eth" + std::to_string(one);
  }
  std::printf("by%s\n", way.c_str());
  return 0;
}

TEST_F(Networks, RanksMeetOverIpv6) {
  std::string lines;
  const auto result = sum(ipv6(254), "", lines);
  EXPECT_EQ(result.exit_code, 0) << lines << result.last_line;
  EXPECT_EQ(lines, "by eth1\nby eth1\n");
}

TEST_F(Networks, TheInterfaceIsThatTowardsTheCoordinatorUnlessChosen) {
  const std::string fd = ipv6(0).substr(0, ipv6(0).size() - 1) + "/64";
  for (const auto& [interface, expected] : {std::pair<std::string, const char*>{"", "by eth0\n"},
                                            {"eth1", "by eth1\n"},
                                            {fd, "by eth1\n"}}) {
    std::string lines;
    const auto result = sum(ipv4(254), interface, lines);
    EXPECT_EQ(result.exit_code, 0) << interface << "\n" << lines << result.last_line;
    EXPECT_EQ(lines, std::string(expected) + expected) << interface;
  }
}

TEST_F(Networks, AWrongInterfaceListsThoseOfTheHost) {
  std::string lines;
  const auto result = sum(ipv4(254), "eth2", lines);
  EXPECT_EQ(result.exit_code, 2) << lines;
  EXPECT_NE(result.last_line.find("eth2"), std::string::npos) << result.last_line;
  EXPECT_NE(result.last_line.find("eth1 fd7e:"), std::string::npos) << result.last_line;
}

}  // namespace
}  // namespace trireme
