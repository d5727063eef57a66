// SimCluster: workers and servers of the simulated network, whose processes end and begin again, and
// the authority that says which servers live. Only for tests. Ranks 0 ... workers-1 are workers, the
// servers follow.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/work_source.h"
#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/server/server.h"
#include "trireme/ps/worker/client.h"
#include "trireme/rendezvous/server_view.h"

namespace trireme::inline v0::ps {

/// A worker's process was killed.
struct Killed {};

/// Which push or commit made a version of a shard. If several primaries have made one, that of the
/// highest term counts: what a dead primary did alone is gone.
struct History {
  std::map<std::int64_t, Applied> updates;  // by version
  void note(const Applied& one) {
    const auto [found, is_new] = updates.try_emplace(one.version, one);
    if (!is_new && found->second.at.term <= one.at.term) found->second = one;
  }
};

class SimCluster {
 public:
  SimCluster(std::uint64_t seed, int workers, int servers, int broken_per_million = 0)
      : SimCluster(seed, workers, servers,
                   {.shared_memory = seed % 2 == 0, .broken_per_million = broken_per_million}) {}
  SimCluster(std::uint64_t seed, int workers, int servers, const net::SimChannelOptions& options)
      : workers_(workers),
        servers_(servers),
        network_(workers + servers, {.seed = seed}),
        channels_(network_, options),
        authority_(servers),
        views_(static_cast<std::size_t>(workers + servers)),
        killed_(views_.size()),
        histories(static_cast<std::size_t>(servers)) {
    for (auto& view : views_) view = std::make_shared<rendezvous::ServerView>(authority_.view());
  }

  using Work = std::function<void(int worker, ParameterClient& client, Waiter& waiter)>;
  /// Runs until `work` has returned in each worker. A worker that is killed begins it anew.
  void run(const Settings& settings, const Work& work) {
    network_.run([&](int rank) {
      try {
        rank < workers_ ? run_worker(rank, settings, work) : run_server(rank);
      } catch (const std::exception& error) {
        failures.push_back("rank " + std::to_string(rank) + ": " + error.what());
        ended_ = workers_;
      }
      wake_all();
    });
  }

  /// kill -9 of a server within the next 30 us, unless a shard would have no copy. It begins again.
  void kill_server(int server) {
    at_soon(server_rank(server), [this, server] {
      if (!can_lose(server)) return;
      ++num_killed;
      end_process(server_rank(server));
      at_soon(0, [this, server] { lose(server); });
    });
  }
  void kill_worker(int worker) {
    at_soon(worker, [this, worker] {
      if (killed_[static_cast<std::size_t>(worker)] || ended_ == workers_) return;
      ++num_killed;
      end_process(worker);
    });
  }
  /// Cuts a server off from the other servers, the authority and some workers for a while. The
  /// authority takes it for dead.
  void isolate_server(int server) {
    at_soon(server_rank(server), [this, server] {
      if (!can_lose(server)) return;
      ++num_killed;
      isolated_ = server;
      std::vector<int> cut;
      for (int rank = 0; rank < workers_ + servers_; ++rank)
        if (rank != server_rank(server) && (rank >= workers_ || draw(2) == 0)) cut.push_back(rank);
      for (const int rank : cut) channels_.cut(rank, server_rank(server));
      at_soon(0, [this, server] { lose(server); });
      const auto duration = std::chrono::microseconds(draw(2000));
      at_in(server_rank(server), duration, [this, server, cut] {
        isolated_ = -1;
        for (const int rank : cut) channels_.mend(rank, server_rank(server));
        publish();
      });
    });
  }

  std::uint64_t draw(std::uint64_t bound) { return network_.scheduler().random().draw(bound); }
  int workers() const noexcept { return workers_; }
  TimePoint now() const { return network_.scheduler().now(); }
  const rendezvous::ServerView& view() const { return authority_.view(); }

 private:
  int server_rank(int server) const noexcept { return workers_ + server; }
  std::size_t index(int server) const { return static_cast<std::size_t>(server_rank(server)); }

  void at_in(int rank, Duration delay, std::function<void()> task) {
    network_.scheduler().at(rank, network_.scheduler().now() + delay, std::move(task), false);
  }
  void at_soon(int rank, std::function<void()> task) {
    at_in(rank, std::chrono::nanoseconds(draw(30'000)), std::move(task));
  }
  void wake_all() {
    for (int rank = 0; rank < workers_ + servers_; ++rank) network_.waiter(rank)->wake();
  }
  // One server is lost at a time, and only while all shards have another copy.
  bool can_lose(int server) const {
    for (int rank = workers_; rank < workers_ + servers_; ++rank)
      if (killed_[static_cast<std::size_t>(rank)]) return false;
    return isolated_ < 0 && ended_ < workers_ && authority_.can_lose(server);
  }
  void end_process(int rank) {
    killed_[static_cast<std::size_t>(rank)] = true;
    channels_.kill(rank);
    network_.waiter(rank)->wake();
  }
  void lose(int server) {
    authority_.down(server);
    publish();
  }
  // Each rank gets it a little later.
  void publish() {
    const auto view = std::make_shared<rendezvous::ServerView>(authority_.view());
    for (int rank = 0; rank < workers_ + servers_; ++rank) {
      if (isolated_ >= 0 && rank == server_rank(isolated_)) continue;
      at_soon(rank, [this, rank, view] {
        auto& own = views_[static_cast<std::size_t>(rank)];
        if (view->number > own->number) own = view;
        network_.waiter(rank)->wake();
      });
    }
  }

  std::shared_ptr<net::Channel> dial(int rank, int server) {
    if (server < 0) throw PeerLost("no server has the shard", {});
    if (killed_[static_cast<std::size_t>(rank)]) throw PeerLost("killed", {});
    return channels_.dial(rank, "sim:" + std::to_string(server_rank(server)));
  }

  ServerContacts contacts_of(int rank, int own) {
    return {
        .view = [this, rank] { return views_[static_cast<std::size_t>(rank)]; },
        .has_copy =
            [this, own](int shard, std::uint64_t term, int server, std::uint32_t incarnation) {
              if (isolated_ == own) return;
              at_soon(0, [=, this] {
                authority_.has_copy(shard, term, own, server, incarnation);
                publish();
              });
            },
        .unreachable =
            [this, own](int server, std::uint32_t incarnation) {
              if (isolated_ == own || !authority_.view().lives(server, incarnation)) return;
              ++num_unreachable;
              lose(server);
            },
        .dial = [this, rank](int server, auto to) { return dial(rank, server, std::move(to)); }};
  }
  // From another server. Who dials a server that hangs hears nothing for 2 s.
  trireme::Work dial(int rank, int server, std::shared_ptr<std::shared_ptr<net::Channel>> to) {
    if (server == hanging) {
      const auto waiter = network_.waiter(rank);
      const WorkSource source(waiter);
      waiter->run_at(waiter->now() + std::chrono::seconds(2), [source] {
        source.fail(std::make_exception_ptr(TimeoutError("nobody answers", {})));
      });
      return source.work();
    }
    try {
      *to = dial(rank, server);
      return {};
    } catch (const Error&) {
      return trireme::Work::failed(std::current_exception());
    }
  }

  void run_server(int rank) {
    const int number = rank - workers_;
    const auto waiter = network_.waiter(rank);
    const auto finished = [&] { return ended_ == workers_; };
    while (!finished()) {
      killed_[static_cast<std::size_t>(rank)] = false;
      const auto acceptor = channels_.listen(rank);
      const std::uint32_t incarnation = authority_.up(number, acceptor->address());
      views_[static_cast<std::size_t>(rank)] =
          std::make_shared<rendezvous::ServerView>(authority_.view());
      publish();
      ParameterServer server(waiter, *acceptor,
                             {.number = number,
                              .incarnation = incarnation,
                              .contacts = contacts_of(rank, number),
                              .on_applied =
                                  [this](const Applied& one) {
                                    histories[static_cast<std::size_t>(one.shard)].note(one);
                                    if (on_applied) on_applied(one);
                                  },
                              .patience = std::chrono::seconds(5)});
      server.run([&] { return finished() || killed_[static_cast<std::size_t>(rank)]; });
      num_fenced += server.is_fenced() ? 1 : 0;
      channels_.kill(rank);
      waiter->wait_until(finished, waiter->now() + std::chrono::microseconds(draw(3000)));
    }
  }

  void run_worker(int rank, const Settings& settings, const Work& work) {
    const auto waiter = network_.waiter(rank);
    bool& killed = killed_flag(rank);
    for (;; killed = false) {
      try {
        const auto& view = views_[static_cast<std::size_t>(rank)];
        waiter->wait_until([&] { return view->complete() || killed; }, TimePoint::max());
        const auto dial_primary = [&](int shard) {
          if (killed) throw Killed();
          return dial(rank, view->primary(shard));
        };
        ParameterClient client(waiter, settings,
                               {.worker = rank, .dial = dial_primary, .term = [&](int shard) {
                                  return view->shards[static_cast<std::size_t>(shard)].term;
                                }});
        work(rank, client, *waiter);
        break;
      } catch (const Killed&) {
      }
    }
    ++ended_;
  }
  bool& killed_flag(int rank) { return killed_[static_cast<std::size_t>(rank)].value; }

  struct Flag {
    bool value = false;
    operator bool() const noexcept { return value; }
    Flag& operator=(bool now) noexcept {
      value = now;
      return *this;
    }
  };
  const int workers_, servers_;
  net::SimNetwork network_;
  net::SimChannels channels_;
  rendezvous::ServerAuthority authority_;
  std::vector<std::shared_ptr<const rendezvous::ServerView>> views_;  // by rank
  std::vector<Flag> killed_;                                          // by rank
  int isolated_ = -1;                                                 // a server
  std::atomic<int> ended_ = 0;                                        // workers

 public:
  std::vector<History> histories;  // by shard
  std::function<void(const Applied&)> on_applied;
  std::vector<std::string> failures;
  int hanging = -1;  // a server that answers no other server
  int num_killed = 0, num_fenced = 0, num_unreachable = 0;
};

}  // namespace trireme::inline v0::ps
