// Follower: what a shard's primary knows of one backup, and its connection to it. A broken one is
// made again, and the backup goes on where it was, or gets all of the shard. Not thread safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/net/channel.h"
#include "trireme/ps/copies/relay.h"
#include "trireme/ps/server/service.h"

namespace trireme::inline v0::ps {

/// A request in the order of its shard.
struct LogEntry {
  Position at;
  int client = -1;
  std::optional<Request> request;     // none: the client is lost
  std::span<const std::byte> memory;  // valid while `keeps` lives
  std::shared_ptr<const void> keeps;
};

/// The entries that some backup may not have yet, and the position before the first.
struct Log {
  Position before;
  std::deque<LogEntry> entries;
  Position end() const noexcept { return entries.empty() ? before : entries.back().at; }
};

class Follower {
 public:
  struct Options {
    int shard = 0;
    std::uint64_t term = 0;  // the primary's
    int server = 0;          // the backup's
    std::uint32_t incarnation = 0;
    std::function<Work(std::shared_ptr<std::shared_ptr<net::Channel>> to)> dial;
    /// Limits the copies of requests that wait for a backup that is not required().
    std::size_t most_behind_bytes = std::size_t{1} << 30;
  };
  Follower(std::shared_ptr<Waiter> waiter, Options options);
  ~Follower();

  int server() const noexcept { return options_.server; }
  std::uint32_t incarnation() const noexcept { return options_.incarnation; }
  /// The last entry that the backup is known to have.
  std::uint64_t acknowledged() const noexcept { return acknowledged_; }
  /// Whether the backup knows a newer primary.
  bool refused() const noexcept { return refused_; }
  /// Whether no answer leaves before the backup has the entry: it has had all of the shard, or is too
  /// far behind.
  bool required() const noexcept { return required_; }
  void require() noexcept { required_ = true; }
  /// The time since which the backup owes an answer. TimePoint::max(): it owes none, or the request
  /// is still being sent, on a channel that ends if nothing moves.
  TimePoint owes_since() const noexcept { return sending_ ? TimePoint::max() : owes_since_; }
  void forgive() noexcept { owes_since_ = waiter_->now(); }

  /// Whether poll() has something to do.
  bool work_waits() const;
  /// When poll() is to be called again, if nothing comes before.
  TimePoint wake_at() const noexcept;
  /// Connects if that is due, and takes what the backup has said. A backup that cannot go on with
  /// `log` gets all of `service`.
  void poll(const Log& log, Service& service);
  /// A new entry of the log.
  void send(const LogEntry& entry);

 private:
  enum class State { Away, Dialled, Greeted, Following };
  struct Outgoing {
    std::string head;
    LogEntry entry;              // keeps its memory
    std::vector<std::byte> own;  // or the memory itself
    Work sent;
  };
  void dial();
  void greet();
  void take(const Log& log, Service& service);
  void catch_up(Position from, const Log& log, Service& service);
  void send_snapshot(Position at, Service& service);
  void put(const Relay& relay, LogEntry entry, std::vector<std::byte> own);
  void listen() { received_ = channel_->receive(frame_); }
  void drop_sent();
  void lose();

  const std::shared_ptr<Waiter> waiter_;
  const Options options_;
  State state_ = State::Away;
  bool refused_ = false, required_ = false;
  bool sending_ = false;                       // at the last poll(), not all had left yet
  bool warned_ = false;                        // that it cannot have a copy
  std::uint64_t acknowledged_ = 0, sent_ = 0;  // indices
  std::deque<Outgoing> outgoing_;
  std::size_t behind_bytes_ = 0;  // of the copies of requests in it
  net::ChannelFrame frame_;
  Work dialled_, received_;
  std::shared_ptr<std::shared_ptr<net::Channel>> arriving_;  // what is dialled; may outlive this
  std::shared_ptr<net::Channel> channel_;
  TimePoint next_try_{};
  TimePoint owes_since_;
};

}  // namespace trireme::inline v0::ps
