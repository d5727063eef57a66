// BatchStatistics: batch norms' running statistics, the same on any layout (NUMERICS.md).
//
// While it lives, a forward pass in training mode leaves the micro-batch's own mean and variance in
// the buffers (momentum 1); capture() takes them out and puts the running ones back. fold() gathers
// the captured pairs of all ranks and folds them in index order with the module's own momentum.
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

class BatchStatistics {
 public:
  explicit BatchStatistics(torch::nn::Module& module);
  ~BatchStatistics();  // the modules get their momentum back

  bool empty() const noexcept;
  /// After a micro-batch's forward pass.
  void capture();
  /// After the vote: every rank folds all of the batch's pairs. Collective.
  void fold(comm::Communicator& world, const kernel::Assignment& assignment, std::uint32_t total);
  /// The step was refused: its pairs are forgotten.
  void drop() noexcept;
  /// The buffers were written from outside (a checkpoint).
  void reload();

 private:
  struct Norm;
  std::vector<std::unique_ptr<Norm>> norms_;
  std::size_t width_ = 0;  // doubles per captured micro-batch
  std::vector<double> captured_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
