// The body of every rank of the kill matrix: the victim is killed at its n-th send, receive,
// notification or read of a peer's memory, or by a peer at the peer's n-th.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/chaos/checked_calls.h"
#include "tests/chaos/exchange.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/job.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/membership.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/testing/run_processes.h"

namespace trireme::test {

inline constexpr int kRanks = 3;
inline const std::vector<std::string> kHosts = {"one", "one", "two"};  // for mixed

// How the victim dies (n: `place`):
//   messages   at its n-th call; no rank reads another's memory
//   moves      at its n-th call; ranks read one another's memory
//   peer       killed by the rank before it, at that rank's n-th call that concerns the victim
//   read       killed by the rank before it, at that rank's n-th half of a read of its memory
//   touch      when it reads or writes beyond the n-th page of a peer's arena, in the middle of a
//              copy
struct Killing {
  std::string transport;     // shm, tcp, mixed (over tcp), mpi, mixed-mpi
  std::string way, what;     // what: as CheckedCalls takes it
  bool within_host = false;  // in a group of the victim's host, 0 or 1
  int place = 0, victim = 1;

  std::vector<std::string> arguments() const {
    return {transport,
            way,
            what,
            within_host ? "host" : "world",
            std::to_string(place),
            std::to_string(victim)};
  }
  static Killing from(char** arguments) {
    return {arguments[1],
            arguments[2],
            arguments[3],
            std::string(arguments[4]) == "host",
            std::atoi(arguments[5]),
            std::atoi(arguments[6])};
  }
  int killer() const {
    if (way != "read" && way != "peer") return victim;
    return within_host ? 1 - victim : (victim + kRanks - 1) % kRanks;
  }
  std::string name() const {
    std::string text = transport + "_" + way + "_" + what + (within_host ? "_within_host" : "");
    for (char& letter : text) {
      if (letter == '-' || letter == '.') letter = '_';
    }
    return text;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Killing& killing) {
  return out << killing.name() << ", rank " << killing.victim << " at place " << killing.place;
}

// Kills the victim at the planned place.
class Killer {
 public:
  Killer(Job& job, Killing plan) : rank_(job.rank()), plan_(std::move(plan)) {
    std::vector<std::int64_t> pid{getpid()}, pids(static_cast<std::size_t>(job.size()));
    all_gather(job.world(), pid, pids);
    victim_ = static_cast<pid_t>(pids[static_cast<std::size_t>(plan_.victim)]);
  }
  void start() {
    left_ = plan_.place;
    if (plan_.way != "touch" || rank_ != plan_.victim) return;
    struct sigaction action {};
    action.sa_handler = [](int) { kill(getpid(), SIGKILL); };
    sigaction(SIGSEGV, &action, nullptr);
    const std::size_t free = static_cast<std::size_t>(plan_.place % kPages) * kPage;
    for (const auto& arena : arenas_) {
      mprotect(arena.data() + free, arena.size() - free, PROT_NONE);
    }
  }
  /// Keeps the calls' arenas; the board and the staging area are larger.
  void on_map(int peer, std::span<std::byte> memory) {
    if (peer != rank_ && memory.size() < std::size_t{1} << 20) arenas_.push_back(memory);
  }
  void at(testing::FaultyTransport::Call call, int peer) {
    using Call = testing::FaultyTransport::Call;
    if (left_ < 0 || rank_ != plan_.killer() || plan_.way == "touch") return;
    if (plan_.way == "read" && (call != Call::Read || peer != plan_.victim)) return;
    if (plan_.way == "peer" && peer != plan_.victim) return;
    if (left_-- > 0) return;
    testing::send_signal(victim_, SIGKILL);
    while (rendezvous::process_state(victim_) != 'Z' &&
           rendezvous::process_state(victim_) != '\0') {
    }
  }

 private:
  static constexpr int kPages = 20;  // fewer than a rank's piece has
  static constexpr std::size_t kPage = 4096;
  const int rank_;
  const Killing plan_;
  std::vector<std::span<std::byte>> arenas_;  // of peers
  pid_t victim_ = 0;
  long left_ = -1;  // not counting yet
};

/// Makes calls over `connected` until a rank dies; prints how the loss was noticed and rethrows it.
[[noreturn]] inline void call_until_killed(Job& job, std::shared_ptr<net::Transport> connected,
                                           const Killing& plan) {
  using testing::FaultyTransport;
  Killer killer(job, plan);
  auto faulty = std::make_shared<FaultyTransport>(
      std::move(connected),
      [&killer](FaultyTransport::Call call, int peer) { killer.at(call, peer); },
      FaultyTransport::Options{
          .reads = plan.way != "messages",
          .on_map = [&killer](int peer, auto memory) { killer.on_map(peer, memory); }});
  comm::CommunicatorOptions options;
  if (plan.transport.starts_with("mixed")) options.host_of_rank = kHosts;
  comm::Communicator world(std::move(faulty), options);
  // MPI does not report a death; only the job's coordinator does.
  std::thread alarm;
  if (plan.transport.ends_with("mpi")) {
    alarm = std::thread([&] {
      std::vector<float> never(1);
      try {
        job.world().recv(buffer_of(never), (job.rank() + 1) % kRanks, 7).wait();
      } catch (...) {
        world.abort(std::current_exception());
      }
    });
  }
  const auto host =
      plan.within_host ? world.split(job.rank() / 2, 0) : std::shared_ptr<comm::Communicator>();
  CheckedCalls calls(host ? *host : world, plan.what);
  if (host) host->barrier().wait();  // its arenas are mapped
  TimePoint start = steady_now();
  try {
    world.barrier().wait();  // a rank that is through may die while others are still in it
    job.waiter()->run([&] { killer.start(); });
    for (int step = 0; step < 1000; ++step) {
      start = steady_now();
      if (!calls.step(step)) std::printf("wrong data in step %d\n", step);
      if (host) world.barrier().wait();
    }
    std::printf("nobody died\n");
    std::fflush(stdout);
    _exit(3);
  } catch (const PeerLost&) {
    std::printf("%s\n",
                steady_now() - start < std::chrono::seconds(2) ? "lost in time" : "lost too late");
    std::fflush(stdout);
    if (alarm.joinable()) alarm.join();
    throw;
  }
}

}  // namespace trireme::test
