#include "trireme/models/layer_factory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <utility>

#include "trireme/models/experts.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::models {
namespace {

class LocalLinear final : public Linear {
 public:
  LocalLinear(const LayerContext& context, const LinearSpec& spec)
      : context_(context), name_(spec.name) {
    weight_ = normal_leaf({spec.out, spec.in}, spec.stddev, context.type, context.seed,
                          context.block + "." + spec.name + ".weight");
    if (spec.bias) bias_ = constant_leaf({spec.out}, 0.0, context.type);
  }
  at::Tensor forward(const at::Tensor& x) override {
    return tensor::linear(x, context_.used(weight_), context_.used(bias_));
  }
  at::Tensor forward_gelu(const at::Tensor& x) override {
    return tensor::linear_gelu(x, context_.used(weight_), context_.used(bias_));
  }
  void append_parameters(std::vector<NamedTensor>& out) const override {
    out.push_back({name_ + ".weight", weight_, true});
    if (bias_.defined()) out.push_back({name_ + ".bias", bias_, false});
  }

 private:
  const LayerContext context_;
  const std::string name_;
  at::Tensor weight_, bias_;
};

class LocalVocabulary final : public Vocabulary {
 public:
  LocalVocabulary(const LayerContext& context, const VocabularySpec& spec)
      : context_(context), name_(spec.name) {
    weight_ = normal_leaf({spec.rows, spec.width}, spec.stddev, context.type, context.seed,
                          context.block + "." + spec.name);
    if (spec.bias) bias_ = constant_leaf({spec.rows}, 0.0, context.type);
  }
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& position) override {
    return tensor::embedding(tokens, context_.used(weight_), position);
  }
  at::Tensor logits(const at::Tensor& x) override {
    return tensor::logits(x, context_.used(weight_), context_.used(bias_));
  }
  void append_parameters(std::vector<NamedTensor>& out) const override {
    out.push_back({name_, weight_, true});
    if (bias_.defined()) out.push_back({"bias", bias_, false});
  }

 private:
  const LayerContext context_;
  const std::string name_;
  at::Tensor weight_, bias_;
};

class LocalLayers final : public LayerFactory {
 public:
  std::unique_ptr<Linear> linear(const LayerContext& context,
                                 const LinearSpec& spec) const override {
    return std::make_unique<LocalLinear>(context, spec);
  }
  std::unique_ptr<Vocabulary> vocabulary(const LayerContext& context,
                                         const VocabularySpec& spec) const override {
    return std::make_unique<LocalVocabulary>(context, spec);
  }
  std::int64_t heads(std::int64_t heads) const override { return heads; }
  at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const override {
    return tensor::attention(qkv, heads, causal);
  }
  std::unique_ptr<Experts> experts(const LayerContext& context,
                                   const ExpertsSpec& spec) const override {
    return make_experts(*this, context, spec);
  }
  at::Tensor whole(const at::Tensor& parameter) const override { return parameter; }
  at::Tensor dropout(const at::Tensor& x, double p) const override { return tensor::dropout(x, p); }
  at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) const override {
    return tensor::cross_entropy_sum(logits, targets);
  }
};

thread_local std::shared_ptr<const LayerFactory> innermost;

}  // namespace

std::shared_ptr<const LayerFactory> local_layers() {
  static const auto factory = std::make_shared<const LocalLayers>();
  return factory;
}

std::shared_ptr<const LayerFactory> current_layers() {
  return innermost ? innermost : local_layers();
}
LayersScope::LayersScope(std::shared_ptr<const LayerFactory> layers)
    : ScopedValue(innermost, std::move(layers)) {}

at::Tensor constant_leaf(at::IntArrayRef sizes, double value, at::ScalarType type) {
  return at::full(sizes, value, at::TensorOptions().dtype(type)).set_requires_grad(true);
}

at::Tensor normal_leaf(at::IntArrayRef sizes, double stddev, at::ScalarType type,
                       std::uint64_t seed, const std::string& global_name) {
  at::Tensor leaf = at::empty(sizes, at::TensorOptions().dtype(type));
  tensor::fill_normal(leaf, seed, global_name, 0.0, stddev);
  return leaf.set_requires_grad(true);
}

}  // namespace trireme::inline v0::models
