// Replicas: a Stage's parameters as plain data parallel keeps them on each rank.
//
// Master weights (fp32, or fp64) lie in one arena in parameter order, each 64-byte aligned; bf16
// parameters have their compute copies in a second one. The blocks' own leaves are re-pointed
// there. A tied parameter has one storage and, in each block that uses it, a leaf and an
// accumulator of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/parallel/data/bucket_layout.h"
#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/parallel/pipeline/stage.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct ReplicaParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = true;
  at::Tensor master;   // of `shape`, fp32 or fp64
  at::Tensor compute;  // bf16; undefined where the master itself is used
};

struct Replicas {
  std::vector<ReplicaParameter> parameters;              // in order of first use
  std::vector<std::vector<Accumulated>> uses;            // per block
  std::vector<std::vector<std::uint32_t>> parameter_of;  // per block and use
  std::vector<at::Tensor> leaves;                        // flat over uses
  std::vector<ParameterUse> use_of_leaf;
  std::vector<std::pair<std::string, at::Tensor>> buffers;

  std::vector<optim::OwnedSlice> slices() const;
  std::vector<optim::ParameterInfo> infos() const;
  std::int64_t num_elements() const;
  /// compute = bf16(master): after the masters were written from outside.
  void refresh();
};

/// Throws ConfigError where a tie names no parameter, shapes of tied parameters differ, or the
/// parameters are not of `precision` (fp64 | fp32 | bf16).
Replicas make_replicas(const Stage& stage, const std::vector<models::Tie>& ties,
                       const std::string& precision);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
