// RowGradients: the sparse gradients of a worker's step. Each micro-batch is a leaf of the tree
// sum, and leaves are added as those of parameters are (sync/buckets/leaf_plan.h). Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/ps/rows/served_table.h"
#include "trireme/ps/rows/sparse_rows.h"
#include "trireme/sync/buckets/leaf_plan.h"

namespace trireme::inline v0::ps {

class RowGradients {
 public:
  explicit RowGradients(std::span<const ServedTable> tables);

  /// Takes gradients [u, width] of rows `ids` [u] for the micro-batch under way.
  void take(std::uint32_t table, const at::Tensor& ids, const at::Tensor& gradients);
  /// A new step, or none: forgets the gradients.
  void begin();
  /// The micro-batch is complete: its leaf is its gradients times `weight`.
  void end_micro(std::uint32_t microbatch, const parallel::LeafStep& step, double weight);
  /// Why the step must be refused: a gradient that is not finite.
  const std::optional<std::string>& refusal() const noexcept { return refusal_; }

  /// For each of slots 0 ... terms - 1, the summed rows of each table.
  std::vector<std::vector<RowsView>> terms(std::size_t terms) const;
  void scale(double factor);
  /// For each table, the sum of squares of slot 0.
  std::vector<double> squares() const;

 private:
  struct Taken {
    std::uint32_t table = 0;
    at::Tensor ids, gradients;
  };
  void check_finite(const SparseRows& leaf, const ServedTable& table, std::uint32_t microbatch);

  const std::vector<ServedTable> tables_;
  std::vector<Taken> taken_;                    // of the micro-batch under way
  std::vector<std::vector<SparseRows>> slots_;  // by slot, by table
  std::vector<SparseRows> leaf_;                // by table
  std::optional<std::string> refusal_;
};

}  // namespace trireme::inline v0::ps
