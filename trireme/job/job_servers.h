// JobServers: the parameter servers of a job, as one of its processes sees them: which live and
// have which shard, connections to them, and what this process tells the coordinator of them.
// Belongs to the Job. Methods may be called from any thread once the Job has joined. A server's own
// thread must not block: other threads dial and tell for it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/base/work_thread.h"
#include "trireme/net/channel.h"
#include "trireme/rendezvous/server_view.h"

namespace trireme::inline v0 {

namespace rendezvous {
class CoordinatorClient;
}

class JobServers {
 public:
  /// While the Job joins. `channels` are the options of a connection without the host. `serves`:
  /// this process is a server. `client` outlives the calls of the methods that tell something.
  void open(std::shared_ptr<Waiter> waiter, rendezvous::CoordinatorClient* client,
            net::ChannelOptions channels, bool serves);
  /// For a server: accepts workers at `host`; if empty, at a unix socket, which shares memory.
  void listen(const std::string& host);
  void adopt(rendezvous::ServerView newer);
  /// The job has failed, or has gone on without this process: nobody waits for a server any more.
  void fail(std::exception_ptr error);
  std::exception_ptr failure() const;

  /// As the coordinator said last; the waiter wakes when it changes. Never null.
  std::shared_ptr<const rendezvous::ServerView> view() const;
  /// A new connection to the server that is a shard's primary, PeerLost or TimeoutError if it is
  /// not there; and a number that changes when another one is.
  std::shared_ptr<net::Channel> dial_shard(int shard) const {
    return connect(view()->primary(shard));
  }
  std::uint64_t shard_term(int shard) const {
    return view()->shards.at(static_cast<std::size_t>(shard)).term;
  }
  /// For a worker: tells that no other worker waits for this one, so that the job can go on without
  /// it while as many are left as a step of the servers needs. 0: tells that it trains together with
  /// the others. MismatchError if another worker has told the opposite: one would wait for the other.
  void train_alone(int needed = 1) const;
  /// For a server that was asked to stop by `signal`, 2 or 15: all workers stop at their next step.
  void tell_stop(int signal) const noexcept;
  /// For a server: where workers come in; which process of this server it is, from 1 on; a new
  /// connection to another server, into `to` (the Work fails as dial_shard() does); and reports on
  /// others (rendezvous/server_view.h), which are not repeated before an answer.
  net::Acceptor& acceptor() const;
  std::uint32_t incarnation() const noexcept { return incarnation_; }
  Work dial(int server, std::shared_ptr<std::shared_ptr<net::Channel>> to);
  void tell_copy(int shard, std::uint64_t term, int server, std::uint32_t incarnation);
  void tell_unreachable(int server, std::uint32_t incarnation);

 private:
  // Shard and term of a copy, or -1 and 0; server; incarnation.
  using Claim = std::tuple<int, std::uint64_t, int, std::uint32_t>;
  std::shared_ptr<net::Channel> connect(int server) const;
  void tell(const Claim& claim, std::function<void()> say);

  std::shared_ptr<Waiter> waiter_;
  rendezvous::CoordinatorClient* client_ = nullptr;  // null: no coordinator
  net::ChannelOptions channels_;
  bool serves_ = false;
  std::unique_ptr<net::Acceptor> acceptor_;
  std::uint32_t incarnation_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<const rendezvous::ServerView> view_ =
      std::make_shared<rendezvous::ServerView>();  // guarded by mutex_
  std::exception_ptr failure_;                     // guarded by mutex_
  std::set<Claim> untold_;                         // guarded by mutex_
  // These threads end first. A server that hangs does not delay connections to others.
  std::map<int, WorkThread> diallers_;  // by server; guarded by mutex_
  std::optional<WorkThread> teller_;    // guarded by mutex_
};

}  // namespace trireme::inline v0
