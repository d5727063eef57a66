// shm and channels with few descriptors. The program starts no thread before it forks, so a bare fork is safe here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "groups.h"
#include "trireme/base/error.h"
#include "trireme/net/channel.h"

namespace trireme::conformance::descriptors_test {
namespace {

using namespace std::chrono_literals;

// sockets[{a, b}]: the end of rank a of the socket between a and b.
std::map<std::pair<int, int>, int> connect_pairs(int ranks) {
  std::map<std::pair<int, int>, int> sockets;
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
      sockets[{a, b}] = ends[0];
      sockets[{b, a}] = ends[1];
    }
  }
  return sockets;
}

constexpr int kRanks = 8;
constexpr rlim_t kLimit = 36;    // of open descriptors, and of the user's descriptors under way
constexpr uid_t kUser = 64'321;  // root has no such limit

int live(int rank, const std::map<std::pair<int, int>, int>& sockets) {
  std::vector<int> own(kRanks, -1);
  for (const auto& [pair, socket] : sockets) {
    if (pair.first == rank) own[static_cast<std::size_t>(pair.second)] = socket;
    if (pair.first != rank) close(socket);
  }
  const rlimit few{kLimit, kLimit};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0 || (getuid() == 0 && setuid(kUser) != 0)) return 7;
  try {
    const auto waiter = RealWaiter::make();
    Rank context{rank, kRanks, waiter,
                 net::make_shm(waiter, {.rank = rank, .size = kRanks}, std::move(own))};
    context.barrier();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 6;
  }
}

// The kernel limits the descriptors of a user that are sent and not received. Here three ranks that
// introduce themselves reach the limit. Each rank starts when the one before it has sent.
TEST(Descriptors, RanksMeetThoughTheirUserMaySendOnlyFewAtOnce) {
  const auto sockets = connect_pairs(kRanks);
  std::vector<pid_t> children;
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) _exit(live(rank, sockets));
    children.push_back(pid);
    if (rank == 0) break;
    pollfd sent{sockets.at({rank - 1, rank}), POLLIN, 0};
    ASSERT_EQ(poll(&sent, 1, 30'000), 1) << "rank " << rank << " sent nothing";
  }
  for (const auto& [pair, socket] : sockets) close(socket);
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

// Sends descriptors that nobody receives until the user may send no more.
void fill_up(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &socket, sizeof socket);
  while (sendmsg(socket, &message, MSG_DONTWAIT) == 1) {
  }
  if (errno != ETOOMANYREFS) throw std::runtime_error("the kernel has not refused a descriptor");
}

// Runs in a process of its own.
int share_while_none_may_be_sent() {
  const rlimit few{kLimit, kLimit};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0 || (getuid() == 0 && setuid(kUser + 1) != 0)) return 7;
  try {
    int full[2], ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, full) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
      return 5;
    fill_up(full[0]);
    const Rank context{.waiter = RealWaiter::make()};
    const auto near = net::channel_over(context.waiter, Descriptor(ends[0]), {}, 4096);
    const auto far = net::channel_over(context.waiter, Descriptor(ends[1]), {}, 4096);
    const auto area = near->share(100);
    area->bytes[99] = std::byte{7};
    net::ChannelFrame frame;
    const std::byte word[] = {std::byte{1}};
    const Work sent = near->send(word), received = far->receive(frame);
    Rank(context).in_context([] {});  // both have been tried
    if (sent.done() || received.done()) return 4;
    close(full[0]);
    close(full[1]);
    sent.wait();
    received.wait();
    return far->area_of_peer(0)[99] == std::byte{7} ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 6;
  }
}

TEST(Descriptors, AChannelSharesMemoryWhenItsUserMaySendDescriptorsAgain) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) _exit(share_while_none_may_be_sent());
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Lets this process open no more descriptors while it lives.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);
    close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

std::pair<Rank, Rank> two_ranks() {
  const auto sockets = connect_pairs(2);
  Rank ranks[2];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<int> own(2, -1);
      own[static_cast<std::size_t>(1 - rank)] = sockets.at({rank, 1 - rank});
      const auto waiter = RealWaiter::make();
      ranks[rank] = {rank, 2, waiter, net::make_shm(waiter, {.rank = rank, .size = 2}, own)};
    });
  }
  for (auto& thread : threads) thread.join();
  return {ranks[0], ranks[1]};
}

// The kernel drops a descriptor that arrives when the process may open no more.
TEST(Descriptors, ARegionWhoseDescriptorWasDroppedIsAnErrorThatSaysWhatToDo) {
  auto [owner, peer] = two_ranks();
  peer.in_context([&] {  // so that no other thread of `peer` receives
    net::Region region;
    owner.in_context([&] { region = owner.transport->capabilities().memory->allocate(4096, {}); });
    const NoMoreDescriptors none;
    try {
      peer.transport->capabilities().memory->map(0, region.id);
      ADD_FAILURE() << "the region was mapped without a descriptor";
    } catch (const ResourceError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_EQ(error.peer(), 0);
      EXPECT_THAT(error.advice(), ::testing::HasSubstr("ulimit -n"));
    }
  });
}

// Regions take no descriptors once they have arrived, whether or not they are mapped.
TEST(Descriptors, ARegionThatHasArrivedTakesNone) {
  auto [owner, peer] = two_ranks();
  peer.in_context([&] {
    std::vector<net::Region> regions(3);
    owner.in_context([&] {
      for (auto& one : regions) one = owner.transport->capabilities().memory->allocate(4096, {});
    });
    const auto lowest_free = [] {
      const int next = dup(0);
      close(next);
      return next;
    };
    auto& memory = *peer.transport->capabilities().memory;
    const int before = lowest_free();
    EXPECT_EQ(memory.map(0, regions[2].id).size(), 4096u);
    EXPECT_EQ(lowest_free(), before);
    const NoMoreDescriptors none;
    for (const auto& one : regions) EXPECT_EQ(memory.map(0, one.id).size(), 4096u);
  });
}

}  // namespace
}  // namespace trireme::conformance::descriptors_test
