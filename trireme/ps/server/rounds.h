// Rounds: the steps of synchronous workers at one server. In a round each worker sends its terms of
// the batch's sum. With enough of them the shard adds them up, and the first commit updates the
// weights:
//
//     round r      terms of worker 0, 1, ... -> close(): sum, squares -> commit(r): one update
//     round r + 1  terms ...
//
// With backup workers the service itself commits a round when it closes it. Rounds knows
// connections by their numbers only and answers nothing. A Service owns it. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <vector>

#include "trireme/ps/messages.h"
#include "trireme/ps/server/shard.h"

namespace trireme::inline v0::ps {

class SnapshotReader;  // of service_snapshot.cc

class Rounds {
 public:
  /// Collected: answered when the round is closed. Repeated: the round before already has this
  /// worker's terms. Late: the round was closed without them.
  enum class Taken { Collected, Repeated, Late };
  /// Takes the terms of a request; `memory` must stay until the round is closed. MismatchError if
  /// they are no terms of this shard's sum in this round.
  Taken take(int client, const Request& request, std::span<const std::byte> memory,
             const Shard& shard);
  /// Whether the terms of `workers` - `backup` workers are here, or of all that have not left, and
  /// nobody reads. A worker whose connection broke comes again and is awaited.
  bool complete(int workers, int backup) const;
  struct Closed {
    std::map<int, int> clients;  // by worker
    double rate = 0, scale = 1;  // of the terms of the first worker
  };
  /// Adds the terms up in the shard, and goes on to the next round.
  Closed close(Shard& shard);
  /// The workers whose terms are in the round that was closed last.
  const std::set<int>& members() const noexcept { return members_; }
  /// The round that was closed last: the sums of squares of each chunk of parameters, then of each
  /// table the limbs of an ExactSum.
  const std::vector<double>& squares() const noexcept { return squares_; }
  /// The first parameter whose sum is not finite in that round, or -1.
  std::int64_t not_finite() const noexcept { return not_finite_; }
  /// The round that is collected.
  std::int64_t number() const noexcept { return number_; }

  /// Over: a later round has been closed. First: the caller updates the weights now.
  enum class Commit { Over, First, Again };
  Commit commit(std::int64_t round);

  /// From now on the worker may read the shard's memory, until its next terms.
  void add_reader(int worker, int client) { readers_[worker] = client; }

  void arrive(int worker) { done_.erase(worker), readers_.erase(worker); }
  void leave(int worker) { done_.insert(worker), readers_.erase(worker); }
  void lost(int client) {
    std::erase_if(parts_, [&](const auto& one) { return one.second.client == client; });
    std::erase_if(readers_, [&](const auto& one) { return one.second == client; });
  }
  /// By worker: whose terms are in the round that is collected.
  std::map<int, int> clients() const;
  /// For other workers: nothing of the old ones is kept.
  void clear() { parts_.clear(), done_.clear(), readers_.clear(); }
  /// Makes the present step round 0. `closed`: it has the terms of all `workers`, and is committed.
  void restart(bool closed, int workers);

  /// For Service::snapshot(); appends to its memory (service_snapshot.cc).
  nlohmann::json snapshot(std::vector<std::byte>& memory) const;
  void restore(const nlohmann::json& json, SnapshotReader& from, const Shard* shard);

 private:
  struct Contribution {
    int client = -1;
    Request request;
    Terms terms;  // views of `memory`
    std::span<const std::byte> memory;
    std::vector<std::byte> own = {};  // that memory, after restore()
  };
  static Terms terms_of(const Request& request, std::span<const std::byte> memory,
                        const Shard& shard);
  void check(const Request& request, const Terms& terms, const Shard& shard) const;

  std::int64_t number_ = 0;
  std::map<int, Contribution> parts_;  // by worker
  std::uint32_t total_ = 0;            // micro-batches of the batch
  std::set<int> done_;                 // workers that have left
  std::map<int, int> readers_;         // clients by worker
  std::set<int> members_;              // workers of the round before
  bool committed_ = true;              // the round before
  std::vector<double> squares_;
  std::int64_t not_finite_ = -1;
};

}  // namespace trireme::inline v0::ps
