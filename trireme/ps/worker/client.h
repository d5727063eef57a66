// ParameterClient: a worker's side of all servers of a job. Methods are called by one thread, and
// wait for the servers. Errors are those of shard_link.h.
//
// Server s means the primary of shard s, whichever server that is at the moment.
//
// gradient(s) is memory in which the caller puts what server s gets: the intervals of ServedModel.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/ps/rows/row_router.h"
#include "trireme/ps/server/saved.h"
#include "trireme/ps/settings.h"
#include "trireme/ps/worker/shard_link.h"

namespace trireme::inline v0::ps {

class ParameterClient {
 public:
  /// Connects to all servers. MismatchError if another worker attached with other settings.
  ParameterClient(std::shared_ptr<Waiter> waiter, Settings settings, ClientOptions options);
  /// Leaves. Not in a child of fork(), whose parent still uses the connections.
  ~ParameterClient();
  ParameterClient(const ParameterClient&) = delete;

  const Settings& settings() const noexcept { return settings_; }
  const ServedModel& model() const noexcept { return settings_.model; }
  int servers() const noexcept { return static_cast<int>(servers_.size()); }
  /// Whether all servers had weights when this worker attached, or began.
  bool ready() const noexcept { return ready_; }
  /// For synchronous workers of a later epoch, which all have the weights after `version` updates;
  /// before any other call. The servers forget what they had of the earlier workers' step. If one
  /// has other weights, ready() is false, and the workers may begin with others. `kept`: the
  /// weights of an earlier worker that has not done the next step; else they are a checkpoint's.
  void begin(std::int64_t version, bool kept);
  /// The number of updates in the weights that this worker got last; before, in those that the
  /// servers had when it attached. If servers differ, the least.
  std::int64_t version() const noexcept;
  /// The number of this worker's last push, in this process or in one before.
  std::uint64_t pushes() const noexcept { return sequence_; }

  /// The weights of distinct rows of a table, one after the other.
  void pull_rows(std::uint32_t table, std::span<const std::int64_t> ids, float* rows);
  /// The rows that the next push() (one term) or sum() sends: for each term, those of each table.
  /// Call it before gradient(), if there are tables; what they refer to must stay until the send.
  void set_rows(std::span<const std::vector<RowsView>> terms) { router_.route(terms); }

  /// Memory for `terms` gradients of server `server`.
  std::span<std::byte> gradient(int server, std::size_t terms = 1);
  /// The weights of a server's interval, as they came last. Those of a commit() may be the server's
  /// own memory, and stay until the next sum().
  std::span<const std::byte> weights(int server) const { return servers_[server].link->received(); }

  /// Waits until the servers have weights, and gets them.
  void pull();
  /// Pushes the gradients, which are of the weights that came last, and gets new weights. Returns
  /// the name of the first parameter that was not finite, of which the server has dropped its part.
  /// `finite`: the caller has looked at gradient(), so the servers do not.
  std::optional<std::string> push(double rate, double scale, bool finite = false);

  /// Synchronous: sends this worker's terms (gradient(s, nodes.size()), node by node) and waits for
  /// the other workers'.
  struct Sums {
    std::vector<double> squares;   // of each chunk of the gradient, by server; then of each table
    std::int64_t not_finite = -1;  // the first such parameter; -1: none
    bool dropped = true;           // all servers' rounds were complete without this worker
  };
  Sums sum(const std::vector<kernel::LeafRange>& nodes, std::uint32_t total);
  /// Updates the weights by that sum, once for all workers, and gets them.
  void commit(double rate, double scale);
  /// Both, with backup workers: a server updates once it has the terms of enough workers, unless
  /// their sum is not finite. False: no server has used the terms of this worker.
  bool update(const std::vector<kernel::LeafRange>& nodes, std::uint32_t total, double rate,
              double scale);

  /// Weights and state of a server's interval, for a checkpoint; and the reverse.
  Saved read(int server, bool with_rows = false);
  void write(int server, const Saved& saved);
  /// The time in which this worker has waited for replies, in all.
  Duration time_waited() const noexcept;
  /// The servers' counts of their workers' pushes: a JSON array.
  std::string figures();

 private:
  struct Server {
    std::unique_ptr<ShardLink> link;
    std::int64_t version = 0;  // of the weights that came last
    // The round that comes next. A server may have closed a round that another one is still in.
    std::int64_t round = 0;
  };
  Server& at(int server) { return servers_[static_cast<std::size_t>(server)]; }
  ShardLink& link(int server) { return *at(server).link; }
  void ask_all(const Request& request, std::size_t terms, bool weights);
  Sums take_sums();
  void take_weights();

  const Settings settings_;
  const int process_ = getpid();
  RowRouter router_;
  std::vector<Server> servers_;
  bool ready_ = true;
  std::uint32_t attempts_ = 0;
  std::uint64_t sequence_ = 0;
  std::int64_t clock_ = 0;
};

}  // namespace trireme::inline v0::ps
