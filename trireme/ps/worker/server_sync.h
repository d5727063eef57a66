// ServerSync: parallel.sync = server. Gradients are pushed to servers, which own the weights' updates
// and the optimizer's state (remote_optimizer.h); nothing is reduced among workers.
//
// Synchronous: a worker adds the leaves of its contiguous share into nodes of the tree sum, as in
// plain data parallel, and the servers fold the nodes of all workers: the bits are those of plain
// data parallel. With staleness or backup workers a worker is alone in its world, and the sum of its
// own batch goes to the servers by the optimizer's apply().
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/ps/worker/remote_optimizer.h"
#include "trireme/sync/levels/bucketed_sync.h"
#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::ps {

class ServerSync final : public parallel::BucketedSync {
 public:
  /// `optimizer` outlives it, and is attached to owned() before the first step.
  ServerSync(const parallel::SyncSetup& setup, RemoteOptimizer& optimizer);

  void reserve(std::uint32_t total) override {
    sums_.reserve(parallel::slots_needed(total, workers_.size()));
  }
  void begin(std::uint32_t total, std::span<const parallel::Use> order) override;
  parallel::Pin acquire(parallel::Use) override { return {}; }
  void end_micro() override;
  void end_pass(std::uint32_t, parallel::Phase) override {}
  Work finish() override;
  std::optional<parallel::Refusal> refusal() const override;
  /// First those of parameters, then one for each table of embeddings.
  std::vector<double> chunk_squares() override;
  /// The number of parameters, if only the sum of a row is not finite.
  std::int64_t first_overflow() override;
  void drop() override {
    if (RowGradients* rows = optimizer_.row_gradients()) rows->begin();
  }
  Work publish() override { return {}; }  // apply() has brought the weights

 private:
  bool launches() const override { return false; }
  void launch(std::uint32_t) override {}
  void fill_terms();

  comm::Communicator& workers_;
  RemoteOptimizer& optimizer_;
  ParameterClient::Sums sums_of_all_;
};

}  // namespace trireme::inline v0::ps
