// Jobs over several simulated hosts: processes give their hosts different names.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using testing::run_processes;

TRIREME_PROCESS(hosts) {  // argv[1]: ranks per host
  const int per_host = std::atoi(argv[1]), self = std::atoi(std::getenv("TRIREME_RANK"));
  const std::string name = "host" + std::to_string(self / per_host);
  setenv("TRIREME_HOST", name.c_str(), 1);
  Job job(argc, argv);
  const int hosts = (job.size() + per_host - 1) / per_host;
  if (job.host_name() != name || job.num_hosts() != hosts) return 3;
  if (job.host_rank() != self / per_host || job.local_rank() != self % per_host) return 4;
  if (job.local_size() != job.host().size() || job.host().rank() != job.local_rank()) return 5;
  if (job.across().rank() != job.host_rank()) return 6;
  if (job.world().transport_name() != (hosts > 1 ? "mixed" : "shm")) return 7;
  for (const std::size_t count : {1u, 100u, 100000u}) {
    std::vector<double> x(count, self), y(count, self), z(count, self);
    all_reduce(job.host(), x, Sum);
    all_reduce(job.across(), y, Sum);
    all_reduce(job.world(), z, Sum);
    double on_host = 0, on_others = 0;
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank / per_host == self / per_host) on_host += rank;
      if (rank % per_host == self % per_host) on_others += rank;
    }
    if (x != std::vector<double>(count, on_host)) return 8;
    if (y != std::vector<double>(count, on_others)) return 9;
    if (z != std::vector<double>(count, job.size() * (job.size() - 1) / 2)) return 10;
  }
  return 0;
}

TEST(Hosts, EveryRankKnowsItsPlaceAndTheGroupsAreThere) {
  for (const auto& [ranks, per_host] :
       {std::pair{4, 2}, std::pair{5, 2}, std::pair{3, 1}, std::pair{3, 8}}) {
    const auto run = run_processes(ranks, "hosts", {.arguments = {std::to_string(per_host)}});
    EXPECT_EQ(run.exit_code, 0) << ranks << " ranks, " << per_host << " a host\n" << run.describe();
  }
}

// Counts the connected sockets with the transport's keepalive; the coordinator's has it too. Of one
// family, or of any.
int count_sockets(int family = AF_UNSPEC) {
  const std::string coordinator = std::getenv("TRIREME_COORDINATOR");
  const int door = std::atoi(coordinator.substr(coordinator.rfind(':') + 1).c_str());
  int count = 0;
  for (int socket = 3; socket < 1024; ++socket) {
    int idle = 0, listens = 0;
    socklen_t length = sizeof idle;
    if (getsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &length) != 0) continue;
    length = sizeof listens;
    getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
    sockaddr_storage own{};
    length = sizeof own;
    getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length);
    if (idle != 10 || listens != 0 || (family != AF_UNSPEC && own.ss_family != family)) continue;
    sockaddr_in6 peer{};  // IPv4 has the port at the same offset
    length = sizeof peer;
    getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length);
    count += ntohs(peer.sin6_port) != door;
  }
  return count;
}

TRIREME_PROCESS(sockets) {  // argv[1]: ranks per host
  const int per_host = std::atoi(argv[1]), self = std::atoi(std::getenv("TRIREME_RANK"));
  setenv("TRIREME_HOST", ("host" + std::to_string(self / per_host)).c_str(), 1);
  Job job(argc, argv);
  std::printf("%d sockets\n", count_sockets());
  std::vector<float> x(1 << 20, static_cast<float>(self));
  all_reduce(job.world(), x, Sum);
  return x == std::vector<float>(x.size(), 6) ? 0 : 4;
}

TEST(Hosts, SocketsAsManyAsAskedFor) {
  for (const auto& [transport, per_host, sockets] :
       {std::tuple{"tcp", 1, 9}, std::tuple{"mixed", 2, 6}}) {
    const auto run = run_processes(4, "sockets",
                                   {.transport = transport,
                                    .environment = {"TRIREME_COMM_SOCKETS=3"},
                                    .arguments = {std::to_string(per_host)}});
    EXPECT_EQ(run.exit_code, 0) << run.describe();
    for (const auto& rank : run.ranks) {
      EXPECT_EQ(rank.out, std::to_string(sockets) + " sockets\n") << run.describe();
    }
  }
}

TRIREME_PROCESS(families) {
  Job job(argc, argv);
  std::printf("%d over IPv4, %d over IPv6\n", count_sockets(AF_INET), count_sockets(AF_INET6));
  std::vector<float> x(100'000, 1);
  all_reduce(job.world(), x, Sum);
  return x == std::vector<float>(x.size(), job.size()) ? 0 : 4;
}

TEST(Hosts, MeetOverIpv6Loopback) {
  launch::LaunchOptions options =
      testing::process_launch_options(3, "families", {.transport = "tcp"});
  options.listen = "::1";
  options.handle_signals = false;
  std::string lines;
  options.on_line = [&](int, bool, std::string_view line) { lines.append(line).append("\n"); };
  const auto result = launch::launch(options);
  EXPECT_EQ(result.exit_code, 0) << lines << result.last_line;
  std::string expected;
  for (int rank = 0; rank < 3; ++rank) expected += "0 over IPv4, 2 over IPv6\n";
  EXPECT_EQ(lines, expected);
}

TEST(Hosts, TheInterfaceIsChosen) {
  for (const auto& [interface, expected] :
       {std::pair{"lo", "2 over IPv4, 0 over IPv6\n"},
        std::pair{"::1/128", "0 over IPv4, 2 over IPv6\n"},
        std::pair{"127.0.0.0/8", "2 over IPv4, 0 over IPv6\n"}}) {
    const auto run = run_processes(
        3, "families",
        {.transport = "tcp", .environment = {std::string("TRIREME_COMM_INTERFACE=") + interface}});
    EXPECT_EQ(run.exit_code, 0) << run.describe();
    for (const auto& rank : run.ranks) EXPECT_EQ(rank.out, expected) << run.describe();
  }
}

TEST(Hosts, AnInterfaceThatIsNotThereIsRefused) {
  const auto run =
      run_processes(2, "families", {.environment = {"TRIREME_COMM_INTERFACE=no-such0"}});
  EXPECT_EQ(run.exit_code, 2) << run.describe();
  EXPECT_NE(run.last_line.find("no-such0"), run.last_line.npos) << run.describe();
  EXPECT_NE(run.last_line.find("lo 127.0.0.1"), run.last_line.npos) << run.describe();
}

TRIREME_PROCESS(lost) {
  const int self = std::atoi(std::getenv("TRIREME_RANK"));
  setenv("TRIREME_HOST", self < 2 ? "a" : "b", 1);
  Job job(argc, argv);
  barrier(job.world());
  if (self == 3) _exit(7);
  std::vector<float> x(100000);
  for (;;) all_reduce(job.world(), x, Sum);
}

TEST(Hosts, ADeadRankOnAnotherHostEndsTheJob) {
  const auto run = run_processes(4, "lost", {});
  EXPECT_EQ(run.exit_code, 7) << run.describe();
  EXPECT_FALSE(run.out_of_time);
  EXPECT_LT(run.took, std::chrono::seconds(8));
}

}  // namespace
}  // namespace trireme
