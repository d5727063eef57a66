// shm and tcp between real processes, one of which is killed in the middle. The program starts no
// thread before it forks, so a bare fork is safe here.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "groups.h"
#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/net/transport.h"

namespace trireme::conformance {
namespace {

using namespace std::chrono_literals;
constexpr int kRanks = 3;
constexpr int kVictim = 1;

// An all-gather in memory shared by the processes.
struct Board {
  std::atomic<int> arrived{0};
  std::array<std::array<char, 128>, kRanks> text{};
};

net::Exchange exchange_on(Board& board, int rank) {
  return [&board, rank](const std::string& mine) {
    std::snprintf(board.text[static_cast<std::size_t>(rank)].data(), 128, "%s", mine.c_str());
    ++board.arrived;
    while (board.arrived < kRanks) usleep(100);
    std::vector<std::string> all;
    for (const auto& one : board.text) all.emplace_back(one.data());
    return all;
  };
}

using Connect = std::function<std::shared_ptr<net::Transport>(
    const std::shared_ptr<Waiter>&, const net::ConnectOptions&, const net::Exchange&)>;

// Exchanges 1 MiB with every rank; then the victim is killed and the others must name it at once.
int live_and_lose(Rank& rank) {
  constexpr std::size_t kSize = 1 << 20;
  std::vector<std::vector<std::byte>> in(kRanks, std::vector<std::byte>(kSize));
  std::vector<std::byte> out(kSize, static_cast<std::byte>(rank.rank + 1));
  std::vector<Work> works;
  for (int peer = 0; peer < kRanks; ++peer) {
    works.push_back(rank.send(peer, 1, out));
    works.push_back(rank.recv(peer, 1, in[static_cast<std::size_t>(peer)]));
  }
  Work::all(works).wait(Deadline::in(30s));
  for (int peer = 0; peer < kRanks; ++peer) {
    const auto& got = in[static_cast<std::size_t>(peer)];
    if (got.front() != static_cast<std::byte>(peer + 1) || got.back() != got.front()) return 3;
  }
  rank.barrier();
  if (rank.rank == kVictim) raise(SIGKILL);
  const TimePoint start = rank.waiter->now();
  try {
    rank.recv(kVictim, 2, in[0]).wait(Deadline::in(30s));
  } catch (const PeerLost& error) {
    if (error.peer() != kVictim || rank.waiter->now() - start > 2s) return 4;
    return error.exit_code();
  }
  return 5;
}

int child(int rank, Board& board, const Connect& connect) {
  try {
    const auto waiter = RealWaiter::make();
    net::ConnectOptions options;
    options.rank = rank;
    options.size = kRanks;
    options.secret = "a secret for tests";
    Rank context{rank, kRanks, waiter, connect(waiter, options, exchange_on(board, rank))};
    return live_and_lose(context);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 6;
  }
}

void expect_survivors_name_the_victim(
    const Connect& connect, const std::function<void()>& after_fork = [] {}) {
  void* const shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Board& board = *new (shared) Board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) _exit(child(rank, board, connect));
    children.push_back(pid);
  }
  after_fork();
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<std::size_t>(rank)], &status, 0),
              children[static_cast<std::size_t>(rank)]);
    if (rank == kVictim) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank;
      EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::PeerLost)) << "rank " << rank;
    }
  }
  munmap(shared, sizeof(Board));
}

TEST(Processes, ShmSurvivorsNameTheKilledRank) {
  expect_survivors_name_the_victim(net::connect_shm);
}

TEST(Processes, TcpSurvivorsNameTheKilledRank) {
  expect_survivors_name_the_victim(net::connect_tcp);
}

TEST(Processes, ShmOverSocketsThatSomebodyElseConnected) {
  std::array<std::array<int, kRanks>, kRanks> sockets{};
  for (int a = 0; a < kRanks; ++a) {
    sockets[static_cast<std::size_t>(a)][static_cast<std::size_t>(a)] = -1;
    for (int b = a + 1; b < kRanks; ++b) {
      int pair[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      sockets[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = pair[0];
      sockets[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = pair[1];
    }
  }
  // A process that keeps a copy of another rank's end keeps it open: nobody would see it close.
  const auto close_but = [&](int rank) {
    for (int a = 0; a < kRanks; ++a) {
      for (const int one : sockets[static_cast<std::size_t>(a)]) {
        if (a != rank && one >= 0) close(one);
      }
    }
  };
  expect_survivors_name_the_victim(
      [&](const auto& waiter, const auto& options, const auto&) {
        close_but(options.rank);
        const auto& mine = sockets[static_cast<std::size_t>(options.rank)];
        return net::make_shm(waiter, options, {mine.begin(), mine.end()});
      },
      [&] { close_but(-1); });
}

}  // namespace
}  // namespace trireme::conformance
