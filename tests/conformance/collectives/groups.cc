#include "tests/conformance/collectives/groups.h"

#include <sys/socket.h>

#include <barrier>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/connect.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::test {
namespace {

// An all-gather of one string per rank between threads, in place of the coordinator.
class Meeting {
 public:
  explicit Meeting(int size) : words_(static_cast<std::size_t>(size)), all_(size) {}
  std::vector<std::string> exchange(int rank, const std::string& mine) {
    words_[static_cast<std::size_t>(rank)] = mine;
    all_.arrive_and_wait();
    const std::vector<std::string> words = words_;
    all_.arrive_and_wait();
    return words;
  }

 private:
  std::vector<std::string> words_;
  std::barrier<> all_;
};

std::vector<std::vector<int>> socket_pairs(int size) {
  std::vector<std::vector<int>> sockets(size, std::vector<int>(size, -1));
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) throw std::runtime_error("socketpair");
      sockets[a][b] = pair[0];
      sockets[b][a] = pair[1];
    }
  }
  return sockets;
}

void run_threads(const Group& group, const std::function<void(comm::Communicator&)>& body) {
  Meeting meeting(group.size);
  auto sockets = socket_pairs(group.transport == "shm" ? group.size : 0);
  std::vector<std::exception_ptr> errors(group.size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto waiter = RealWaiter::make();
        net::ConnectOptions connect;
        connect.rank = rank;
        connect.size = group.size;
        connect.secret = "conformance";
        const auto exchange = [&](const std::string& mine) { return meeting.exchange(rank, mine); };
        comm::CommunicatorOptions options;
        std::shared_ptr<net::Transport> transport;
        if (group.transport == "shm") {
          transport = net::make_shm(waiter, connect, sockets[rank]);
        } else if (group.transport == "tcp") {
          transport = net::connect_tcp(waiter, connect, exchange);
        } else {
          for (int one = 0; one < group.size; ++one) {  // two ranks per host
            options.host_of_rank.push_back("host " + std::to_string(one / 2));
          }
          transport = net::connect_mixed(waiter, connect, exchange, options.host_of_rank);
        }
        options.algorithm = group.algorithm;
        if (group.prepare) group.prepare(rank, options);
        comm::Communicator world(std::move(transport), options);
        body(world);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

void run_group(const Group& group, const std::function<void(comm::Communicator&)>& body) {
  if (group.transport != "sim") return run_threads(group, body);
  testing::run_ranks(group.size, [&](testing::RankContext& rank) { body(*rank.world); },
                     {.seed = group.seed, .algorithm = group.algorithm});
}

}  // namespace trireme::test
