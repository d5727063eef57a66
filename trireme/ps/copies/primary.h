// Primary: the copy of a shard that workers ask. It decides the order of the requests, gives them
// to the backups in that order, and knows which all of them have: no answer leaves before. It
// recruits the backups that the settings ask for among the servers that live. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trireme/ps/copies/follower.h"
#include "trireme/rendezvous/server_view.h"

namespace trireme::inline v0::ps {

/// How a server talks with the job's ServerAuthority and with other servers. view() returns the
/// latest view, never null; the waiter wakes when it changes. None of these may block: all workers
/// would wait.
struct ServerContacts {
  std::function<std::shared_ptr<const rendezvous::ServerView>()> view;
  /// ServerAuthority::has_copy() and down(). They may be lost; then they are repeated.
  std::function<void(int shard, std::uint64_t term, int server, std::uint32_t incarnation)>
      has_copy;
  std::function<void(int server, std::uint32_t incarnation)> unreachable;
  /// Puts a channel to a server into `to`. Fails with PeerLost or TimeoutError if it is not there.
  std::function<Work(int server, std::shared_ptr<std::shared_ptr<net::Channel>> to)> dial;
};

class Primary {
 public:
  struct Options {
    int shard = 0;
    int server = 0;                                // this one
    Duration patience = std::chrono::seconds(30);  // with a backup that does not answer
  };
  /// `at`: the position of `service`, which it moves on. Both and `contacts` outlive it. The clients
  /// that `service` knows were connected to another server, and count as lost.
  Primary(std::shared_ptr<Waiter> waiter, Service& service, Position& at,
          const ServerContacts& contacts, const rendezvous::ServerView& view, Options options);

  /// A request, whose memory stays while `keeps` lives and the request is not answered.
  void submit(int client, const Request& request, std::span<const std::byte> memory,
              std::shared_ptr<const void> keeps);
  void lose(int client);
  /// A new view, in which this server is still the primary.
  void adopt(const rendezvous::ServerView& view);

  /// The position of the newest request: what depends on it may be sent once settled(index).
  std::uint64_t newest() const noexcept { return at_.index; }
  bool settled(std::uint64_t index) const noexcept {
    return (whole_ || service_.settings() == nullptr) && index <= committed_;
  }

  /// As in Follower.
  bool work_waits() const;
  TimePoint wake_at() const noexcept;
  void poll();

 private:
  struct Backup {
    std::unique_ptr<Follower> follower;
    TimePoint told{};  // when the authority was told of its copy
  };
  Position next() const noexcept { return {term_, at_.index + 1}; }
  void append(LogEntry entry);
  bool is_wanted(int server) const;
  void add(int server, bool required);
  void recruit();
  void settle();
  void report(Backup& backup);
  bool is_awaited(const Follower& follower) const noexcept;
  bool is_unknown(const Follower& follower) const noexcept;

  const std::shared_ptr<Waiter> waiter_;
  Service& service_;
  Position& at_;
  const ServerContacts& contacts_;
  const Options options_;
  const std::uint64_t term_;
  rendezvous::ServerView view_;
  Log log_;
  std::vector<Backup> backups_;
  std::uint64_t committed_ = 0;
  bool whole_;            // each backup that was there has had a copy
  bool deposed_ = false;  // another server is the primary, as a backup has said
};

}  // namespace trireme::inline v0::ps
