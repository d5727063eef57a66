// CoordinatorClient: a rank's side of the control plane.
//
// The constructor connects (both ends prove the job's secret) and joins. It throws RefusedError for
// a wrong secret (exit code 11), version or identity (10), and TimeoutError if no coordinator
// answers. Thread safe; every call has a deadline.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/rendezvous/epoch.h"
#include "trireme/rendezvous/membership.h"
#include "trireme/rendezvous/server_view.h"

namespace trireme::inline v0::rendezvous {

struct ClientOptions {
  std::string endpoint;  // "127.0.0.1:40123"
  std::string secret;
  std::string job = "job";
  int rank = 0;  // the number of this process (roles.h)
  std::string host;
  std::string identity;
  std::string version = {};  // empty: kWireVersion
  Duration timeout = std::chrono::seconds(30);
};

struct News {
  enum class Kind {
    Failure,
    Stop,
    Left,
    Finished,
    Servers,
    Epoch,
    CoordinatorAway,  // it is waited for, or waits for its store; `reason` says which
    CoordinatorBack,
    CoordinatorLost
  } kind = Kind::Failure;
  Failure failure;
  int stop_signal = 0;
  int left_rank = -1;
  ServerView servers;
  rendezvous::Epoch epoch;
  std::string reason;  // of CoordinatorAway; of CoordinatorLost, if it is known
};

/// The processes of `members` (ascending), if any; else `count` from `first` on, or all if it is 0.
struct ExchangeGroup {
  int first = 0, count = 0;
  std::vector<int> members = {};
  std::uint32_t epoch = 0;  // of `members`; a later one ends the wait with PeerLost
};

class CoordinatorClient {
 public:
  using Group = ExchangeGroup;
  explicit CoordinatorClient(ClientOptions options);
  ~CoordinatorClient();
  struct Answer {
    bool has_workers = false;   // the coordinator reaches some
    bool has_begun = false;     // an elastic job has had ranks
    Duration returns_within{};  // how long processes wait for a coordinator that is gone
  };
  /// Asks the coordinator about its job, without joining; throws as the constructor does.
  static Answer ask(ClientOptions options);
  CoordinatorClient(const CoordinatorClient&) = delete;

  /// Collective: returns the value of every process of the group under `key`, in their order. A key
  /// has at most 256 bytes, a value 512 KiB. Throws TimeoutError if not all called within `timeout`
  /// (the call may be repeated), PeerLost if one failed or left.
  std::vector<std::string> exchange(const std::string& key, const std::string& value,
                                    Duration timeout, const Group& group = {});
  /// Sends this rank's activity and returns all ranks' states. Throws TimeoutError, PeerLost.
  Table heartbeat(const Activity& activity, Duration timeout);
  /// The same without the states, which n ranks need not get from each of n ranks' heartbeats.
  void beat(const Activity& activity, Duration timeout);
  /// Starts a thread that calls `on_news`; stop_watching() joins it. Only one at a time. When
  /// watch() returns, the coordinator treats the stream's end as this rank's. Throws TimeoutError.
  void watch(std::function<void(const News&)> on_news);
  void stop_watching() noexcept;
  /// The present view of the parameter servers. By listen_at() a server says where it listens, and
  /// also gets its incarnation.
  ServerView server_view(Duration timeout);
  std::pair<ServerView, std::uint32_t> listen_at(const std::string& address, Duration timeout);
  /// A shard's primary reports that a backup has the shard, or is unreachable, and repeats it if
  /// nothing follows. Both wait at most 1 s and do not throw.
  void tell_copy(int shard, std::uint64_t term, int server, std::uint32_t incarnation) noexcept;
  void tell_unreachable(int server, std::uint32_t incarnation) noexcept;
  /// Reports that this worker trains on its own, and that a step of the servers needs `workers`; 0:
  /// that it trains together with the others. Returns a worker that has reported the opposite. Waits
  /// at most 1 s, or for a coordinator that returns if this one does not answer.
  std::optional<int> tell_alone(int workers = 1) noexcept;
  /// A server was asked to stop by `signal`, 2 or 15: all ranks are to stop. Waits as tell_alone() does.
  void tell_stop(int signal) noexcept;
  /// Waits at most 1 s and does not throw.
  void report(const Failure& failure) noexcept;
  /// `exit_code`: 130 or 143 if the ranks stopped on request, 1 if an exception ends this one.
  /// Waits at most 1 s, or 30 s for a coordinator that returns if this one does not answer. Does
  /// not throw.
  void leave(int exit_code = 0) noexcept;
  /// The time between heartbeats: `own`, or less if the coordinator demands it.
  Duration heartbeat_interval(Duration own) const noexcept;
  /// Whether another coordinator replaces one that is gone. Then failed calls may be repeated, and
  /// exchange() throws TimeoutError.
  bool returns() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0::rendezvous
