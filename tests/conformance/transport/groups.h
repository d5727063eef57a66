// Runs a body on every transport: Sim::run, Shm::run and Tcp::run start one thread per rank, with
// its own waiter and transport, and rethrow the first exception with its rank.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/connect.h"
#include "trireme/net/mpi/mpi_library.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/net/sub_transport.h"

namespace trireme::conformance {

struct Rank {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Waiter> waiter;
  std::shared_ptr<net::Transport> transport;

  Work send(int peer, std::uint64_t tag, std::span<const std::byte> bytes) {
    Work work;
    waiter->run([&] { work = transport->send(peer, {tag}, bytes); });
    wait_for_it();
    return work;
  }
  Work recv(int peer, std::uint64_t tag, std::span<std::byte> bytes) {
    Work work;
    waiter->run([&] { work = transport->recv(peer, {tag}, bytes); });
    wait_for_it();
    return work;
  }
  /// Runs `task` in the progress context and returns when it has run.
  void in_context(const std::function<void()>& task) {
    std::atomic<bool> ran{false};
    waiter->run([&] {
      task();
      ran = true;
      waiter->wake();
    });
    waiter->wait_until([&] { return ran.load(); }, TimePoint::max());
  }
  /// Returns after every rank has called it.
  void barrier() {
    char token = 0;
    std::vector<Work> works;
    const auto bytes = std::as_writable_bytes(std::span(&token, 1));
    std::vector<char> tokens(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      auto& got = tokens[static_cast<std::size_t>(peer)];
      works.push_back(recv(peer, ~0ull, std::as_writable_bytes(std::span(&got, 1))));
      works.push_back(send(peer, ~0ull, bytes));
    }
    Work::all(works).wait(Deadline::in(std::chrono::seconds(60)));
  }

 private:
  // run() may queue behind another thread's turn. When this empty task has run, so has ours.
  void wait_for_it() {
    in_context([] {});
  }
};

using Body = std::function<void(Rank&)>;

/// An all-gather among threads, any number of times.
class ThreadExchange {
 public:
  explicit ThreadExchange(int size) : rounds_of_(static_cast<std::size_t>(size)) {}
  net::Exchange of(int rank) {
    return [this, rank](const std::string& mine) {
      std::unique_lock lock(mutex_);
      const std::size_t round = rounds_of_[static_cast<std::size_t>(rank)]++;
      if (round == rounds_.size()) rounds_.push_back({std::vector<std::string>(rounds_of_.size())});
      rounds_[round].values[static_cast<std::size_t>(rank)] = mine;
      ++rounds_[round].arrived;
      changed_.notify_all();
      changed_.wait(lock, [&] { return rounds_[round].arrived == rounds_of_.size(); });
      return rounds_[round].values;
    };
  }

 private:
  struct Round {
    std::vector<std::string> values;
    std::size_t arrived = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Round> rounds_;
  std::vector<std::size_t> rounds_of_;
};

template <class Connect>
void run_threads(int size, const Body& body, const Connect& connect) {
  ThreadExchange exchange(size);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank context{rank, size, RealWaiter::make(), nullptr};
        net::ConnectOptions options;
        options.rank = rank;
        options.size = size;
        options.secret = "a secret for tests";
        context.transport = connect(context.waiter, options, exchange.of(rank));
        body(context);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

struct Shm {
  static constexpr const char* kName = "shm";
  static constexpr const char* kTransport = kName;
  static constexpr bool kMaps = true;
  static bool maps(int, int) { return true; }
  static void run(int size, const Body& body, std::uint64_t = 1) {
    run_threads(size, body, net::connect_shm);
  }
};

/// Tells the transport that there are two ranks per host.
template <int kSockets>
struct MixedOver {
  static constexpr const char* kTransport = "mixed";
  static constexpr bool kMaps = true;
  static bool maps(int a, int b) { return a / 2 == b / 2; }
  static void run(int size, const Body& body, std::uint64_t = 1) {
    std::vector<std::string> hosts;
    for (int rank = 0; rank < size; ++rank) hosts.push_back("host " + std::to_string(rank / 2));
    run_threads(size, body, [&](auto waiter, net::ConnectOptions options, const auto& exchange) {
      options.sockets = kSockets;
      return net::connect_mixed(waiter, options, exchange, hosts);
    });
  }
};
struct Mixed : MixedOver<1> {
  static constexpr const char* kName = "mixed";
};
struct Mixed2 : MixedOver<2> {
  static constexpr const char* kName = "mixed_2_sockets";
};

#ifdef TRIREME_CONFORMANCE_MPI
/// Ranks are the processes that mpirun started; larger groups do not run.
struct Mpi {
  static constexpr const char* kName = "mpi";
  static constexpr const char* kTransport = kName;
  static constexpr bool kMaps = false;
  static bool maps(int, int) { return false; }
  static void run(int size, const Body& body, std::uint64_t = 1) {
    static net::MpiGroup all;
    if (size > all.size()) return;
    auto group = std::make_unique<net::MpiGroup>(nullptr, size);
    if (!group->member()) return;
    Rank context{group->rank(), size, RealWaiter::make(), nullptr};
    context.transport = net::connect_mpi(context.waiter, std::move(group));
    body(context);
  }
};
#endif

template <int kSockets>
struct TcpOver {
  static constexpr const char* kTransport = "tcp";
  static constexpr bool kMaps = false;
  static bool maps(int, int) { return false; }
  static void run(int size, const Body& body, std::uint64_t = 1) {
    run_threads(size, body, [](auto waiter, net::ConnectOptions options, const auto& exchange) {
      options.sockets = kSockets;
      return net::connect_tcp(waiter, options, exchange);
    });
  }
};
struct Tcp : TcpOver<1> {
  static constexpr const char* kName = "tcp";
};
struct Tcp2 : TcpOver<2> {
  static constexpr const char* kName = "tcp_2_sockets";
};
struct Tcp4 : TcpOver<4> {
  static constexpr const char* kName = "tcp_4_sockets";
};

struct Sim {
  static constexpr const char* kName = "sim";
  static constexpr const char* kTransport = kName;
  static constexpr bool kMaps = true;
  static bool maps(int, int) { return true; }
  static void run(int size, const Body& body, std::uint64_t seed = 1) {
    net::SimNetwork network(size, {.seed = seed});
    network.run([&](int rank) {
      Rank context{rank, size, network.waiter(rank), network.transport(rank)};
      body(context);
    });
  }
};

/// The first `size` ranks of a transport with one rank more; the extra rank leaves at once.
template <class Parent>
struct Grouped {
  static constexpr const char* kTransport = Parent::kName;
  static constexpr bool kMaps = Parent::kMaps;
  static bool maps(int a, int b) { return Parent::maps(a, b); }
  static void run(int size, const Body& body, std::uint64_t seed = 1) {
    Parent::run(
        size + 1,
        [&](Rank& rank) {
          if (rank.rank == size) return;
          std::vector<int> members(static_cast<std::size_t>(size));
          std::iota(members.begin(), members.end(), 0);
          const auto id = net::group_id(0, members, "conformance", 0);
          rank.transport = net::make_sub_transport(rank.transport, members, id);
          rank.size = size;
          body(rank);
        },
        seed);
  }
};
struct GroupOnSim : Grouped<Sim> {
  static constexpr const char* kName = "group_on_sim";
};
struct GroupOnShm : Grouped<Shm> {
  static constexpr const char* kName = "group_on_shm";
};

}  // namespace trireme::conformance
