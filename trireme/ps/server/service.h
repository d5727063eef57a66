// Service: a server's copy of a shard, and what it does with each request, without the network.
// Deterministic: the same requests in the same order give the same replies and weights. So all
// copies at one position of the order that the shard's primary decides are equal. Not thread safe.
//
// A client is a connection of a worker, with at most one request that is not answered. A reply may
// come later, when another client's request or loss makes it possible: a pull waits for the first
// weights, a push for the bound of staleness, terms for those of the other workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ps/messages.h"
#include "trireme/ps/server/ledger.h"
#include "trireme/ps/server/rounds.h"
#include "trireme/ps/server/saved.h"
#include "trireme/ps/server/shard.h"
#include "trireme/ps/settings.h"

namespace trireme::inline v0::ps {

/// Server `server`'s shard under these settings, without weights.
std::unique_ptr<Shard> make_shard(const Settings& settings, int server, const Spread& spread,
                                  std::span<std::byte> shared = {});

/// Memory into which a shard's weights go at once, so that they need not be copied for clients.
struct Rooms {
  using Room = std::function<std::span<std::byte>(int client, std::size_t bytes)>;
  static std::span<std::byte> none(int, std::size_t) { return {}; }

  /// Memory of `bytes`, or none, for the weights in the reply to a client's request (for Read:
  /// text, weights and state). They are written there while they are updated, and the reply says
  /// so. advance() serves such pushes and commits together, with the results of one by one.
  Room reply = none;
  /// Memory for the shard's own weights, which clients can read, or none. Asked for when a
  /// synchronous shard is made for its first client. A worker reads from its commit to its next
  /// terms.
  Room shard = none;
  /// Whether this client can read that memory.
  std::function<bool(int client)> reads = [](int) { return false; };
};

/// An update of a copy: a push, or the commit of a round (worker -1).
struct Applied {
  int shard = 0;
  Position at;  // set by ParameterServer
  int worker = -1;
  std::uint64_t sequence = 0;  // of the push
  std::int64_t version = 0;    // after it
  std::int64_t staleness = 0;  // of the push
};
using OnApplied = std::function<void(const Applied&)>;

class Service {
 public:
  /// Sends a reply. `memory` is valid during the call only.
  using Answer =
      std::function<void(int client, const Reply& reply, std::span<const std::byte> memory)>;

  /// `shard`: its number. `spread` as Shard's.
  Service(int shard, Answer answer, OnApplied on_applied = {}, Spread spread = in_one_part,
          Rooms rooms = {});

  /// `memory` stays valid and unchanged until the reply. A request that cannot be met is answered
  /// with an exit code and a sentence.
  void handle(int client, const Request& request, std::span<const std::byte> memory);
  /// Whether updates are under way. advance() makes a part of them, and answers the complete ones.
  bool under_way() const noexcept { return shard_ && shard_->updates().under_way(); }
  void advance();
  /// The connection has ended. The memory of its request is not used any more.
  void lost(int client);
  /// The clients whose connections have not ended, ascending.
  std::vector<int> clients() const;

  /// All that handle() depends on (service_snapshot.cc). A service that restores it goes on as this
  /// one would, with the same clients.
  Saved snapshot();
  /// MismatchError unless it is another service's snapshot of this shard.
  void restore(std::string_view text, std::span<const std::byte> memory);

  /// Null before the first worker has attached.
  const Settings* settings() const { return settings_ ? &*settings_ : nullptr; }
  std::int64_t version() const noexcept { return version_; }
  /// JSON: pushes, drops and repeats by worker, the histogram of staleness, the version.
  std::string figures() const;

 private:
  struct Waiting {
    int client = -1, worker = -1;
    Reply reply;
    std::span<const std::byte> written = {};  // the weights; empty: those at the time of the answer
    std::uint64_t push = 0;                   // the update that makes them: Sweep::begun()
    bool is_written() const noexcept { return !written.empty(); }
  };

  void serve(int client, const Request& request, std::span<const std::byte> memory);
  void attach(int client, const Request& request, std::span<const std::byte> memory);
  void end_epoch();
  void begin(int client, const Request& request);
  void write(int client, const Request& request, std::span<const std::byte> memory);
  void read(int client, const Request& request);
  void pull_rows(int client, const Request& request, std::span<const std::byte> ids);
  void push(int client, const Request& request, std::span<const std::byte> gradient);
  void take_terms(int client, const Request& request, std::span<const std::byte> memory);
  void commit(int client, const Request& request);
  void complete_round();
  void update_by_round(double rate, double scale, std::span<std::byte> room);
  void finish();
  void release();

  const int server_;
  const Answer answer_;
  const OnApplied on_applied_;
  const Spread spread_;
  const Rooms rooms_;
  std::optional<Settings> settings_;
  std::unique_ptr<Shard> shard_;
  std::optional<Ledger> ledger_;
  bool ready_ = false;  // has weights that this epoch's workers go on with
  std::int64_t version_ = 0;
  std::int64_t epoch_ = 0;        // of the workers
  std::uint32_t attempt_ = 0;     // the last Begin in it
  std::int64_t squares_of_ = -1;  // the version that the commit of the last closed round has made
  bool has_weights_ = false;
  std::vector<Waiting> waiting_;                  // for weights
  std::map<int, std::vector<std::byte>> before_;  // by worker: the weights it has, if compensated
  Rounds rounds_;                                 // of synchronous workers
  std::vector<float> pulled_;                     // of the reply to PullRows
};

}  // namespace trireme::inline v0::ps
