#include "trireme/layers/tensor/layers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/layers/shares.h"
#include "trireme/layers/tensor/part.h"
#include "trireme/layers/tensor/regions.h"
#include "trireme/models/experts.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::parallel {
namespace {

using models::LayerContext;
using models::LinearSpec;
using models::NamedTensor;
using models::Part;

struct Group {
  comm::Communicator* ranks;
  bool sequence;

  int size() const { return ranks->size(); }
  Part part(int dim, std::int64_t whole, int sections = 1) const {
    return {.dim = dim, .index = ranks->rank(), .of = size(), .sections = sections, .whole = whole};
  }
  at::Tensor enter(const at::Tensor& x) const {
    return sequence ? gather_sequence(x, *ranks) : enter_cut(x, *ranks);
  }
  at::Tensor leave(const at::Tensor& x) const {
    return sequence ? scatter_sum(x, *ranks) : leave_cut(x, *ranks);
  }
  // If positions are cut, each rank's gradient of a whole parameter covers only its own positions.
  at::Tensor whole(const at::Tensor& parameter) const {
    return sequence && parameter.defined() ? enter_cut(parameter, *ranks) : parameter;
  }
};

at::Tensor leaf_of(const at::Tensor& whole, const Part& part) {
  return part_of(whole.detach(), part).set_requires_grad(true);
}

class TensorLinear final : public models::Linear {
 public:
  TensorLinear(const Group& group, const LayerContext& context, const LinearSpec& spec)
      : group_(group), context_(context), spec_(spec) {
    const std::string name = context.block + "." + spec.name;
    const auto divides = [&](const char* what, std::int64_t count) {
      check_tensor_share(name + " has " + std::to_string(count) + " " + what, count, group.size());
    };
    if (spec.cut == models::Cut::Columns) divides("columns", spec.out / spec.parts);
    if (spec.cut == models::Cut::Rows) divides("rows", spec.in);
    const at::Tensor weight = models::normal_leaf({spec.out, spec.in}, spec.stddev, context.type,
                                                  context.seed, name + ".weight");
    weight_part_ = spec.cut == models::Cut::None   ? Part{}
                   : spec.cut == models::Cut::Rows ? group.part(1, spec.in)
                                                   : group.part(0, spec.out, spec.parts);
    weight_ = leaf_of(weight, weight_part_);
    if (!spec.bias) return;
    if (spec.cut == models::Cut::Columns) bias_part_ = weight_part_;
    bias_ = leaf_of(models::constant_leaf({spec.out}, 0.0, context.type), bias_part_);
  }

  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor weight = context_.used(weight_), bias = context_.used(bias_);
    switch (spec_.cut) {
      case models::Cut::Columns:
        return tensor::linear(group_.enter(x), weight, bias);
      case models::Cut::Rows: {
        const at::Tensor sum = group_.leave(tensor::linear(x, weight, {}));
        return bias.defined() ? sum + group_.whole(bias) : sum;
      }
      default:
        return tensor::linear(x, group_.whole(weight), group_.whole(bias));
    }
  }
  at::Tensor forward_gelu(const at::Tensor& x) override {
    if (spec_.cut == models::Cut::Rows) return tensor::gelu_tanh(forward(x));
    const at::Tensor weight = context_.used(weight_), bias = context_.used(bias_);
    if (spec_.cut == models::Cut::Columns)
      return tensor::linear_gelu(group_.enter(x), weight, bias);
    return tensor::linear_gelu(x, group_.whole(weight), group_.whole(bias));
  }
  void append_parameters(std::vector<NamedTensor>& out) const override {
    out.push_back({spec_.name + ".weight", weight_, true, weight_part_});
    if (bias_.defined()) out.push_back({spec_.name + ".bias", bias_, false, bias_part_});
  }

 private:
  const Group group_;
  const LayerContext context_;
  const LinearSpec spec_;
  Part weight_part_, bias_part_;
  at::Tensor weight_, bias_;
};

class TensorVocabulary final : public models::Vocabulary {
 public:
  TensorVocabulary(const Group& group, const LayerContext& context,
                   const models::VocabularySpec& spec)
      : group_(group),
        context_(context),
        spec_(spec),
        part_(group.part(0, spec.rows)),
        begin_(begin_of(part_)) {
    check_vocabulary(spec.rows, group.size());
    weight_ = leaf_of(models::normal_leaf({spec.rows, spec.width}, spec.stddev, context.type,
                                          context.seed, context.block + "." + spec.name),
                      part_);
    if (spec.bias) bias_ = leaf_of(models::constant_leaf({spec.rows}, 0.0, context.type), part_);
  }

  // Tokens of another rank's rows look up a row here too; the mask zeroes it.
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& position) override {
    tensor::check_tokens(tokens, position);
    check(tokens);
    const at::Tensor rows = tokens - begin_;
    const at::Tensor here = rows.ge(0).logical_and(rows.lt(weight_.size(0)));
    const at::Tensor found =
        tensor::embedding(rows.clamp(0, weight_.size(0) - 1), context_.used(weight_), {}) *
        here.unsqueeze(-1);
    at::Tensor x = group_.leave(found);
    if (!position.defined()) return x;
    at::Tensor own = group_.whole(position).narrow(0, 0, tokens.size(-1));
    if (group_.sequence) own = own.narrow(0, group_.ranks->rank() * x.size(1), x.size(1));
    return x + own;
  }

  at::Tensor logits(const at::Tensor& x) override {
    const at::Tensor own =
        tensor::linear(group_.enter(x), context_.used(weight_), context_.used(bias_));
    if (!c10::GradMode::is_enabled()) return gather_last(own, spec_.rows, *group_.ranks);
    mark_cut_logits(own);
    return own;
  }
  void append_parameters(std::vector<NamedTensor>& out) const override {
    out.push_back({spec_.name, weight_, true, part_});
    if (bias_.defined()) out.push_back({"bias", bias_, false, part_});
  }

 private:
  void check(const at::Tensor& tokens) const {
    if (tokens.numel() == 0) return;
    const std::int64_t least = tokens.min().item<std::int64_t>(),
                       most = tokens.max().item<std::int64_t>();
    if (least >= 0 && most < spec_.rows) return;
    throw ConfigError(
        "token " + std::to_string(least < 0 ? least : most) + " is outside the vocabulary of " +
            std::to_string(spec_.rows),
        {.operation = "embedding", .advice = "The tokenizer and model.vocab must agree."});
  }

  const Group group_;
  const LayerContext context_;
  const models::VocabularySpec spec_;
  const Part part_;
  const std::int64_t begin_;
  at::Tensor weight_, bias_;
};

class TensorLayers final : public models::LayerFactory {
 public:
  explicit TensorLayers(const Group& group) : group_(group) {}
  std::unique_ptr<models::Linear> linear(const LayerContext& context,
                                         const LinearSpec& spec) const override {
    return std::make_unique<TensorLinear>(group_, context, spec);
  }
  std::unique_ptr<models::Vocabulary> vocabulary(
      const LayerContext& context, const models::VocabularySpec& spec) const override {
    if (const std::int64_t other = rows_.exchange(spec.rows); other != 0 && other != spec.rows)
      throw ConfigError("the model has vocabularies of " + std::to_string(other) + " and of " +
                            std::to_string(spec.rows) +
                            " rows, but tensor parallelism can cut only one",
                        {.operation = "tensor parallel",
                         .advice = "Use one vocabulary, or parallel.tensor = 1."});
    return std::make_unique<TensorVocabulary>(group_, context, spec);
  }
  std::int64_t heads(std::int64_t heads) const override {
    check_tensor_share(std::to_string(heads) + " attention heads", heads, group_.size());
    return heads / group_.size();
  }
  at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const override {
    return models::local_layers()->attention(qkv, heads, causal);
  }
  // Every rank routes all tokens identically; each expert is cut as an MLP is.
  std::unique_ptr<models::Experts> experts(const LayerContext& context,
                                           const models::ExpertsSpec& spec) const override {
    if (group_.sequence) refuse_experts_with_sequence();
    return models::make_experts(*this, context, spec);
  }
  at::Tensor whole(const at::Tensor& parameter) const override { return group_.whole(parameter); }
  at::Tensor dropout(const at::Tensor& x, double p) const override {
    if (!group_.sequence) return tensor::dropout(x, p);
    const std::int64_t length = x.size(1);
    return tensor::dropout(
        x, p, {.begin = group_.ranks->rank() * length, .whole = group_.size() * length});
  }
  // Logits are whole without gradients, or if no vocabulary() made them: those of a classifier may
  // have as many columns as this rank's part of the vocabulary.
  at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) const override {
    const Part part = group_.part(0, rows_);
    if (part.of == 1 || logits.size(-1) != shape_of_part({rows_}, part).front() ||
        !c10::GradMode::is_enabled() || !comes_from_cut_logits(logits))
      return tensor::cross_entropy_sum(logits, targets);
    return cut_cross_entropy_sum(logits, targets, begin_of(part), rows_, *group_.ranks);
  }

 private:
  const Group group_;
  mutable std::atomic<std::int64_t> rows_ = 0;  // of the vocabulary that is cut
};

}  // namespace

std::shared_ptr<const models::LayerFactory> tensor_layers(comm::Communicator& group,
                                                          bool sequence) {
  return std::make_shared<TensorLayers>(Group{&group, sequence && group.size() > 1});
}

}  // namespace trireme::inline v0::parallel
