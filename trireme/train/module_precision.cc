#include "trireme/train/module_precision.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "trireme/tensor/autocast.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

using models::Block;

class AutocastBlock final : public Block {
 public:
  explicit AutocastBlock(std::shared_ptr<Block> own) : own_(std::move(own)) {}
  models::Value forward(std::span<const models::Value> inputs) override {
    const Autocast bf16;
    return own_->forward(inputs);
  }
  std::vector<models::NamedTensor> parameters() override { return own_->parameters(); }
  std::vector<models::NamedTensor> buffers() override { return own_->buffers(); }
  void train(bool on) override { own_->train(on); }

 private:
  std::shared_ptr<Block> own_;
};

void widen(const std::vector<models::NamedTensor>& tensors) {
  for (const models::NamedTensor& one : tensors)
    if (one.tensor.is_floating_point()) one.tensor.set_data(one.tensor.detach().to(at::kDouble));
}

std::shared_ptr<Block> converted(std::shared_ptr<Block> block, bool fp64) {
  if (fp64) {
    widen(block->parameters());
    widen(block->buffers());
    return block;
  }
  const std::vector<models::NamedTensor> own = block->parameters();
  const bool knows_bf16 = std::any_of(own.begin(), own.end(), [](const auto& parameter) {
    return parameter.tensor.scalar_type() == at::kBFloat16;
  });
  if (knows_bf16) return block;
  return std::make_shared<AutocastBlock>(std::move(block));
}

}  // namespace

models::Blocks in_precision(const models::Blocks& model, const std::string& precision) {
  if (precision == "fp32") return model;
  models::Blocks blocks;
  for (models::BlockSpec spec : model.specs()) {
    spec.make = [make = spec.make, fp64 = precision == "fp64"] { return converted(make(), fp64); };
    blocks.add_block(std::move(spec));
  }
  for (const models::Tie& tie : model.ties()) blocks.tie(tie.alias, tie.owner);
  return blocks;
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
