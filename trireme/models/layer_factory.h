// LayerFactory: where blocks get their layers, so that tensor parallelism is another factory and no
// change of a model (DESIGN 5). The local factory builds whole layers on this rank.
//
// A layer owns leaf parameters; the runtime may re-point their storage between steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"

namespace trireme {
inline namespace v0 {
namespace models {

/// How a layer's weight may be cut among tensor-parallel ranks: by output columns, by input rows.
enum class Cut : std::uint8_t { None, Columns, Rows };

struct LinearSpec {
  std::string name;  // "attention.qkv": parameters are name.weight, name.bias
  std::int64_t in = 0, out = 0;
  bool bias = false;
  double stddev = 0.02;  // of the initial weight; biases start at 0
  Cut cut = Cut::None;
};

class Linear {
 public:
  virtual ~Linear() = default;
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// gelu(forward(x)), one node.
  virtual at::Tensor forward_gelu(const at::Tensor& x) = 0;
  virtual void append_parameters(std::vector<NamedTensor>& out) const = 0;
};

/// What a layer needs to make its parameters: the block's name makes them global names, by which
/// initial values are drawn.
struct LayerContext {
  std::string block;  // "layer.0"
  std::uint64_t seed = 1;
  at::ScalarType type = at::kFloat;  // of matrices; vectors of norms are fp32 (fp64 under fp64)
};

class LayerFactory {
 public:
  virtual ~LayerFactory() = default;
  virtual std::unique_ptr<Linear> linear(const LayerContext& context,
                                         const LinearSpec& spec) const = 0;
  /// A table [rows, width] drawn with `stddev`, named `name` in the block.
  virtual at::Tensor table(const LayerContext& context, const std::string& name, std::int64_t rows,
                           std::int64_t width, double stddev) const = 0;
};
/// Whole layers on this rank. A constant, thread safe.
std::shared_ptr<const LayerFactory> local_layers();

/// A leaf of `sizes` filled with `value`, and one drawn from N(0, stddev) by (seed, global name).
at::Tensor constant_leaf(at::IntArrayRef sizes, double value, at::ScalarType type);
at::Tensor normal_leaf(at::IntArrayRef sizes, double stddev, at::ScalarType type,
                       std::uint64_t seed, const std::string& global_name);

}  // namespace models
}  // namespace v0
}  // namespace trireme
