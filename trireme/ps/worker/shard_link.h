// ShardLink: a worker's connection to the primary of one shard, for one request at a time. If the
// connection is lost, or another server becomes the primary, it connects again and repeats the
// request. Not thread safe.
//
// Requests and replies lie in areas that the server maps if both are on one host; otherwise they
// travel in frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/net/channel.h"
#include "trireme/ps/messages.h"

namespace trireme::inline v0::ps {

/// How a worker reaches the servers.
struct ClientOptions {
  int worker = 0;
  /// Connects to the primary of a shard. Throws PeerLost or TimeoutError if it is not there.
  std::function<std::shared_ptr<net::Channel>(int shard)> dial;
  /// Changes when another server becomes the shard's primary; the waiter wakes then.
  std::function<std::uint64_t(int shard)> term = [](int) { return 0; };
  /// How long it may take until a lost server, or another one, serves the shard.
  Duration patience = std::chrono::seconds(30);
  /// The number of the job's present set of workers.
  std::int64_t epoch = 0;
  /// Why requests are given up: the job has failed, or its ranks have changed; null: they are not.
  /// A Commit (`commits`) waits for no other worker, so changed ranks are no reason then. The
  /// waiter wakes when the answer changes.
  std::function<std::exception_ptr(bool commits)> broken = [](bool) { return nullptr; };
};

class ShardLink {
 public:
  /// `settings`: the text of Attach.
  ShardLink(std::shared_ptr<Waiter> waiter, int shard, std::string settings, ClientOptions options);

  /// Connects, tries again for `patience`, and attaches, for as long as the server lives. Throws
  /// what dial() throws, and what the server refuses.
  void connect();
  const Reply& attached() const noexcept { return attached_; }

  /// Memory for what the next request sends. A call with more bytes may move it, with its content.
  std::span<std::byte> outgoing(std::size_t bytes);
  /// Sends a request with the first `bytes` of outgoing(); `expected`: the most bytes of the
  /// reply's memory.
  void ask(Request request, std::size_t bytes, std::size_t expected);
  /// Waits for the reply, for as long as the server lives. If it is lost, connects again and
  /// repeats the request; PeerLost if that fails for `patience`, or if the server came back without
  /// weights. Throws the error with which the server refused, and what broken() gives.
  const Reply& finish();
  const Reply& reply() const noexcept { return reply_; }
  /// The reply's memory, until the next ask().
  std::span<const std::byte> received() const noexcept { return received_; }
  /// The time that finish() has waited, in all.
  Duration time_waited() const noexcept { return waited_; }
  void close() noexcept;

 private:
  struct Area {
    std::span<std::byte> bytes;
    std::int64_t id = -1;  // -1: not shared
    std::shared_ptr<void> owner;
    std::vector<std::byte> own;
  };
  void attach();
  void make(Area& area, std::size_t bytes);
  void grow(Area& area, std::size_t bytes);
  void send();
  void await();
  void wait(const Work& work) const;
  void reconnect();
  void stop_if_useless();
  std::exception_ptr given_up() const;
  void stop_if_broken() const;
  void throw_if_moved(bool moved) const;
  [[noreturn]] void refuse(const Reply& reply) const;

  const std::shared_ptr<Waiter> waiter_;
  const int shard_;
  const std::string settings_;
  const ClientOptions options_;
  std::uint64_t term_ = 0;                  // of the shard, when channel_ was made
  TimePoint connected_{};                   // when channel_ was attached
  std::optional<TimePoint> useless_since_;  // each connection since then was lost without a reply
  Reply attached_, reply_;
  Area out_, in_;
  Request request_;
  std::size_t out_bytes_ = 0;
  std::string head_;  // of the request that is being sent
  net::ChannelFrame frame_;
  std::shared_ptr<net::Channel> channel_;  // ends before what it uses
  Work sent_, answered_;
  bool had_weights_ = false;  // the server had, at the last reply
  Duration waited_{};
  std::span<const std::byte> received_;
};

}  // namespace trireme::inline v0::ps
