// RemoteOptimizer: an Optimizer whose weights, state and updates are on the servers. apply() pushes
// this worker's gradients (asynchronous), or commits the sum of the workers' (synchronous), and
// copies the new weights into the slices: with prediction the weights for the next gradient, until
// settle() gets the present ones.
//
// The servers get their first weights from worker 0, at start(): what it was built with, or what
// was loaded from a checkpoint since. A server that has weights keeps them, so that a worker may be
// started again at any time. In a later epoch of an elastic job the workers go on with kept weights
// of the servers' version or the one before (Service::begin()). Other weights are a checkpoint's,
// and the servers get them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/ps/rows/remote_rows.h"
#include "trireme/ps/worker/client.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::ps {

class RemoteOptimizer final : public optim::Optimizer {
 public:
  using Servers = parallel::StrategyContext::Servers;
  /// ConfigError for LAMB and Adafactor.
  RemoteOptimizer(const OptimizerOptions& optimizer, const ServerOptions& options,
                  std::shared_ptr<Waiter> waiter, Servers servers);
  ~RemoteOptimizer() override;

  std::string_view name() const noexcept override { return optim::name_of(optimizer_); }
  /// Whole parameters. Connects to the servers. ConfigError for options that do not go together.
  void attach(std::span<const optim::OwnedSlice> slices,
              std::span<const optim::ParameterInfo> parameters,
              std::shared_ptr<optim::SharedSums> sums = nullptr) override;
  void keep_state_on_host() override {}  // it is on no device
  std::size_t bytes_on_host() const noexcept override { return 0; }
  optim::PartUpdate begin_parts(double, double) override { return {}; }
  void apply(double learning_rate, double scale) override;
  void settle() override;
  double base_learning_rate() const noexcept override {
    return optim::learning_rate_of(optimizer_);
  }
  /// Whole tensors, read from the servers; what is loaded into them goes to the servers at start().
  std::vector<NamedShard> state() override;
  /// Updates by the workers' common batches; for a worker that is alone, the updates by all workers
  /// divided by their number. If servers differ, the least.
  std::int64_t step_count() const noexcept override {
    if (!alone() && !started_ && restored_count_) return *restored_count_;
    return client_ ? client_->version() / updates_a_step() : 0;
  }
  void set_step_count(std::int64_t count) override {
    restored_count_ = count;
    pending_ = !goes_on_;
  }
  /// In a later epoch: whether the servers have the state of weights kept after this many updates,
  /// or one more. Then start() changes nothing. All workers ask with the same number.
  bool can_go_on(std::int64_t updates);
  /// Has weights to begin with whose optimizer state is not on all servers yet.
  bool pending() const noexcept { return pending_; }

  /// Before attach(): the parameters of further uses of tied ones (ServedModel).
  void set_more_uses(std::vector<std::uint32_t> parameters) { more_uses_ = std::move(parameters); }
  /// Before attach(): the tables of the model's embeddings. Returns where their rows are.
  std::shared_ptr<RemoteRows> set_tables(std::vector<ServedTable> tables);
  /// Null: the model has no embeddings on servers.
  RowGradients* row_gradients() const noexcept { return rows_ ? &rows_->gradients() : nullptr; }
  /// Before the first forward pass: gives the servers their weights, or waits for them and takes
  /// them. No effect after the first time.
  void start();
  /// Whether this worker's gradients go to the servers by apply(); else ServerSync sends the terms
  /// of the workers' common batch before.
  bool alone() const noexcept { return options_.alone(); }
  ParameterClient& client() { return *client_; }

 private:
  // Updates while each worker makes one step.
  std::int64_t updates_a_step() const noexcept {
    return options_.bound() == 0 ? 1 : servers_.workers;
  }
  void fill_gradients(double scale);
  void give_weights();
  void take_weights();

  const OptimizerOptions optimizer_;
  const ServerOptions options_;
  const std::shared_ptr<Waiter> waiter_;
  const Servers servers_;
  std::vector<std::uint32_t> more_uses_;
  std::vector<optim::OwnedSlice> slices_;  // by parameter
  std::shared_ptr<RemoteRows> rows_;
  std::unique_ptr<ParameterClient> client_;
  std::vector<NamedShard> state_;  // as last returned before start()
  std::optional<std::int64_t> restored_count_;
  bool started_ = false;
  bool pending_;
  bool goes_on_ = false;    // can_go_on() was true
  bool predicted_ = false;  // the slices have weights of a push's answer
};

}  // namespace trireme::inline v0::ps
