#include "trireme/train/families/recorded_layers.h"

#include <algorithm>
#include <string>

#include "trireme/models/experts.h"

namespace trireme::inline v0::train {
namespace {

using models::LayerContext;

class RecordedLayers final : public models::LayerFactory {
 public:
  RecordedLayers(parallel::ModelShape& shape, std::int64_t positions)
      : shape_(shape), positions_(positions) {}

  std::unique_ptr<models::Linear> linear(const LayerContext& context,
                                         const models::LinearSpec& spec) const override {
    const std::string name = context.block + "." + spec.name + " of ";
    if (spec.cut == models::Cut::Columns) {
      const std::int64_t columns = spec.out / spec.parts;
      shape_.shares.push_back({name + std::to_string(columns) + " columns", columns});
    }
    if (spec.cut == models::Cut::Rows)
      shape_.shares.push_back({name + std::to_string(spec.in) + " rows", spec.in});
    return whole_->linear(context, spec);
  }
  std::unique_ptr<models::Vocabulary> vocabulary(
      const LayerContext& context, const models::VocabularySpec& spec) const override {
    shape_.vocabulary = spec.rows;
    return whole_->vocabulary(context, spec);
  }
  std::int64_t heads(std::int64_t heads) const override {
    shape_.shares.push_back({std::to_string(heads) + " attention heads", heads});
    return whole_->heads(heads);
  }
  at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const override {
    shape_.positions = positions_;
    return whole_->attention(qkv, heads, causal);
  }
  std::unique_ptr<models::Experts> experts(const LayerContext& context,
                                           const models::ExpertsSpec& spec) const override {
    shape_.experts = spec.experts;
    return models::make_experts(*this, context, spec);
  }
  at::Tensor whole(const at::Tensor& parameter) const override { return whole_->whole(parameter); }
  at::Tensor dropout(const at::Tensor& x, double p) const override { return whole_->dropout(x, p); }
  at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) const override {
    return whole_->cross_entropy_sum(logits, targets);
  }

 private:
  parallel::ModelShape& shape_;
  const std::int64_t positions_;
  const std::shared_ptr<const models::LayerFactory> whole_ = models::local_layers();
};

}  // namespace

std::shared_ptr<const models::LayerFactory> recorded_layers(parallel::ModelShape& shape,
                                                            std::int64_t positions) {
  return std::make_shared<RecordedLayers>(shape, positions);
}

}  // namespace trireme::inline v0::train
