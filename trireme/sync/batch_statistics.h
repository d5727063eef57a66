// BatchStatistics: running statistics of batch norms, equal on any layout (docs/numerics.md).
//
// While it lives, a forward pass in training mode writes the micro-batch's own mean and variance to
// the buffers (momentum 1). take() reads them and restores the running values. gather() gets the
// pairs (mean, variance) of all ranks, and fold() folds them in micro-batch order into the running
// values, with the module's own momentum.
//
// One per copy of the model; for a lane's copy only take() and drop() are called. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/kernel/assignment.h"

namespace torch::nn {
class Module;
}

namespace trireme::inline v0::parallel {

class Stage;

class BatchStatistics {
 public:
  /// For the batch norms inside `module`, or in those blocks of a stage that are torch modules.
  explicit BatchStatistics(torch::nn::Module& module);
  explicit BatchStatistics(const Stage& stage);
  ~BatchStatistics();  // restores the modules' momentum
  BatchStatistics(BatchStatistics&&) = delete;

  bool empty() const noexcept { return norms_.empty(); }
  /// Whether `buffer` belongs to one of these batch norms.
  bool covers(const at::Tensor& buffer) const;
  /// After a forward pass: returns the micro-batch's pairs and restores the running values.
  std::vector<double> take();
  /// Restores the running values after forward passes that may belong to no micro-batch. If no
  /// others follow, the next take() returns their pairs.
  void hold() {
    if (!norms_.empty()) held_ = take();
  }
  /// Adds the pairs of this rank's next micro-batch, taken from this copy of the model or another.
  void capture(const std::vector<double>& pairs) {
    captured_.insert(captured_.end(), pairs.begin(), pairs.end());
  }
  void capture() { capture(take()); }
  /// After the vote: every rank gets the pairs of the whole batch. Collective. Strategies in which
  /// each rank trains its own copy leave it out.
  void gather(comm::Communicator& world, const kernel::Assignment& assignment, std::uint32_t total);
  /// Folds the pairs that this rank has.
  void fold();
  /// The step was refused: discards its pairs and restores the running values.
  void drop();
  /// The buffers were written from outside (a checkpoint, replication): reads them again.
  void reload();

 private:
  struct Norm;
  void add(const std::shared_ptr<torch::nn::Module>& module);
  std::vector<std::unique_ptr<Norm>> norms_;
  std::size_t width_ = 0;         // doubles per captured micro-batch
  std::vector<double> captured_;  // pairs of micro-batches, in folding order
  std::vector<double> held_;      // of hold()
};

}  // namespace trireme::inline v0::parallel
