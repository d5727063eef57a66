// ServerView: which parameter servers live, and which of them have which shard. ServerAuthority,
// one object in the job's coordinator, which sees processes end, decides it.
//
// A shard's copies are in an order: the first is the primary, which serves workers. When a server
// goes down it is in no list any more, and the next copy is the primary, of a higher term. A copy
// joins a list only when the shard's primary of the present term says that it has everything. So a
// primary that was taken for dead can acknowledge nothing: a copy that it needs has heard of the
// higher term. Pure bookkeeping: no time, no network. Not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::inline v0::rendezvous {

struct ServerView {
  struct Server {
    std::uint32_t incarnation = 0;  // processes that were this server so far
    bool up = false;
    std::string address;  // of its acceptor
    friend bool operator==(const Server&, const Server&) = default;
  };
  struct Shard {
    std::uint64_t term = 0;   // rises whenever the primary changes; 0: there has been none
    std::vector<int> copies;  // servers; the first is the primary
    friend bool operator==(const Shard&, const Shard&) = default;
  };
  std::uint64_t number = 0;  // of this view; a later one is higher
  std::vector<Server> servers;
  std::vector<Shard> shards;

  /// -1: none.
  int primary(int shard) const noexcept;
  bool has_copy(int shard, int server) const noexcept;
  bool lives(int server, std::uint32_t incarnation) const noexcept;
  /// Whether every shard has had a server.
  bool complete() const noexcept;

  std::string to_text() const;
  /// RefusedError for anything else.
  static ServerView from_text(std::string_view text);
  friend bool operator==(const ServerView&, const ServerView&) = default;
};

class ServerAuthority {
 public:
  /// As many shards as servers; shard k begins on server k.
  explicit ServerAuthority(int servers);
  /// Takes over another authority's decisions.
  explicit ServerAuthority(ServerView view) : view_(std::move(view)) {}

  const ServerView& view() const noexcept { return view_; }
  /// A process is this server now; others reach it at `address`. Returns its incarnation.
  std::uint32_t up(int server, std::string address);
  /// The process is gone, or counts as gone for good.
  void down(int server);
  /// As down(), before the job has begun: the empty shard begins on the next process.
  void reset(int server);
  /// The primary `by` says that `server` has all of the shard. No effect if `by` is not the primary
  /// of that term, or `incarnation` is not the present one.
  void has_copy(int shard, std::uint64_t term, int by, int server, std::uint32_t incarnation);
  /// Whether every shard has a copy without `server`.
  bool can_lose(int server) const noexcept;

 private:
  ServerView view_;
};

}  // namespace trireme::inline v0::rendezvous
