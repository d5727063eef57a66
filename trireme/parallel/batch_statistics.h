// BatchStatistics: batch norms' running statistics, the same on any layout (NUMERICS.md).
//
// While it lives, a forward pass in training mode leaves the micro-batch's own mean and variance in
// the buffers (momentum 1); take() takes them out and puts the running ones back. fold() gathers
// the captured pairs of all ranks and folds them in index order with the module's own momentum.
//
// One for each copy of the model; a lane's is only asked to take(). Not thread safe.
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

namespace trireme {
inline namespace v0 {
namespace parallel {

class Stage;

class BatchStatistics {
 public:
  /// Of the batch norms inside `module`, and of those in a stage's blocks that are torch modules.
  explicit BatchStatistics(torch::nn::Module& module);
  explicit BatchStatistics(const Stage& stage);
  ~BatchStatistics();  // the modules get their momentum back
  BatchStatistics(BatchStatistics&&) = delete;

  bool empty() const noexcept;
  /// Whether it looks after this buffer.
  bool covers(const at::Tensor& buffer) const;
  /// A micro-batch's pairs, after its forward pass; the buffers hold the running values again.
  std::vector<double> take();
  /// The pairs of this rank's next micro-batch, taken from this copy of the model or another.
  void capture(const std::vector<double>& pairs);
  void capture() { capture(take()); }
  /// After the vote: every rank folds all of the batch's pairs. Collective.
  void fold(comm::Communicator& world, const kernel::Assignment& assignment, std::uint32_t total);
  /// The same with this rank's pairs alone, where it trains a copy of its own.
  void fold_own();
  /// The step was refused: its pairs are forgotten, and what a forward pass left that failed.
  void drop();
  /// The buffers were written from outside (a checkpoint, replication).
  void reload();

 private:
  struct Norm;
  void add(const std::shared_ptr<torch::nn::Module>& module);
  void fold_pairs(const std::vector<const double*>& of_micro);
  std::vector<std::unique_ptr<Norm>> norms_;
  std::size_t width_ = 0;  // doubles per captured micro-batch
  std::vector<double> captured_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
