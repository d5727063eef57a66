// LayerFactory: creates the layers of blocks, so that tensor parallelism is another factory and no
// change of a model (docs/architecture.md). The local factory builds whole layers on this rank.
//
// A layer owns leaf parameters; the runtime may re-point their storage between steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/tensor/scoped_value.h"

namespace trireme::inline v0::models {

/// How a layer's weight may be cut among tensor-parallel ranks: by output columns, by input rows.
enum class Cut : std::uint8_t { None, Columns, Rows };

struct LinearSpec {
  std::string name;  // "attention.qkv": parameters are name.weight, name.bias
  std::int64_t in = 0, out = 0;
  bool bias = false;
  double stddev = 0.02;  // of the initial weight; biases start at 0
  Cut cut = Cut::None;
  /// With Cut::Columns: equal sections side by side in `out`, each cut alone (query, key, value).
  int parts = 1;
};

struct VocabularySpec {
  std::string name;  // of the table [rows, width]; a bias [rows] is named "bias"
  std::int64_t rows = 0, width = 0;
  double stddev = 0.02;
  bool bias = false;
};

class Linear {
 public:
  virtual ~Linear() = default;
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// gelu(forward(x)), one node.
  virtual at::Tensor forward_gelu(const at::Tensor& x) = 0;
  virtual void append_parameters(std::vector<NamedTensor>& out) const = 0;
};

/// The table of tokens: input embedding or output projection. Tensor parallelism may cut its rows.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  /// tensor::embedding(tokens, table, position).
  virtual at::Tensor embed(const at::Tensor& tokens, const at::Tensor& position) = 0;
  /// x [..., width] times the table transposed, plus the bias: [..., rows]. If the table is cut and
  /// gradients are on, returns this rank's columns only, for LayerFactory::cross_entropy_sum in the
  /// same stage of a pipeline.
  virtual at::Tensor logits(const at::Tensor& x) = 0;
  virtual void append_parameters(std::vector<NamedTensor>& out) const = 0;
};

/// The data that a layer needs to make its parameters. A parameter's global name is the block's
/// name and its own; its initial values are keyed by that name.
struct LayerContext {
  std::string block;  // "layer.0"
  std::uint64_t seed = 1;
  at::ScalarType type = at::kFloat;  // of matrices; vectors of norms are fp32 (fp64 under fp64)
  /// Wraps a parameter where its layer uses it, if ranks of another axis (context or expert
  /// parallelism) have it too and its gradient must be summed over them. Empty: used as it is.
  std::function<at::Tensor(const at::Tensor& parameter)> use = {};
  at::Tensor used(const at::Tensor& parameter) const {
    return use && parameter.defined() ? use(parameter) : parameter;
  }
};

class Experts;
struct ExpertsSpec;

class LayerFactory {
 public:
  virtual ~LayerFactory() = default;
  virtual std::unique_ptr<Linear> linear(const LayerContext& context,
                                         const LinearSpec& spec) const = 0;
  virtual std::unique_ptr<Vocabulary> vocabulary(const LayerContext& context,
                                                 const VocabularySpec& spec) const = 0;
  /// This rank's number of attention heads out of `heads`: those in the output of a Cut::Columns
  /// layer of three parts. ConfigError with the arithmetic if they do not divide evenly.
  virtual std::int64_t heads(std::int64_t heads) const = 0;
  /// tensor::attention of `heads` heads over the output `qkv` of such a layer.
  virtual at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const = 0;
  /// A mixture of experts that replaces an MLP (models/experts.h).
  virtual std::unique_ptr<Experts> experts(const LayerContext& context,
                                           const ExpertsSpec& spec) const = 0;
  /// Wraps a parameter that every rank has whole, for norms and for layers after a Cut::Rows.
  virtual at::Tensor whole(const at::Tensor& parameter) const = 0;
  /// tensor::dropout of a block's residual stream, or of the shard of it that this rank has.
  virtual at::Tensor dropout(const at::Tensor& x, double p) const = 0;
  /// tensor::cross_entropy_sum of Vocabulary::logits(), or of other logits, which every rank has
  /// whole.
  virtual at::Tensor cross_entropy_sum(const at::Tensor& logits,
                                       const at::Tensor& targets) const = 0;
};
/// Whole layers on this rank. A constant, thread safe.
std::shared_ptr<const LayerFactory> local_layers();

/// The factory of blocks that this thread builds without one: the innermost scope's, or the local.
std::shared_ptr<const LayerFactory> current_layers();
struct LayersScope : tensor::ScopedValue<std::shared_ptr<const LayerFactory>> {
  explicit LayersScope(std::shared_ptr<const LayerFactory> layers);
};

/// A leaf of `sizes` filled with `value`, and one drawn from N(0, stddev) by (seed, global name).
at::Tensor constant_leaf(at::IntArrayRef sizes, double value, at::ScalarType type);
at::Tensor normal_leaf(at::IntArrayRef sizes, double stddev, at::ScalarType type,
                       std::uint64_t seed, const std::string& global_name);

}  // namespace trireme::inline v0::models
