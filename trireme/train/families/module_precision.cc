#include "trireme/train/families/module_precision.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "trireme/models/module_block.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::train {
namespace {

using models::Block;

// Runs a block under Autocast in `type`. fp64 has none: floating-point inputs are converted, since
// images are fp32 whatever the weights are.
models::Value forward_in(at::ScalarType type, Block& block, std::span<const models::Value> inputs) {
  if (type != at::kDouble) {
    const Autocast narrow(inputs.front().front().device().type(), type);
    return block.forward(inputs);
  }
  std::vector<models::Value> wide(inputs.begin(), inputs.end());
  for (models::Value& value : wide)
    for (at::Tensor& tensor : value)
      if (tensor.is_floating_point()) tensor = tensor.to(at::kDouble);
  return block.forward(wide);
}

class ConvertedBlock final : public Block {
 public:
  ConvertedBlock(std::shared_ptr<Block> own, at::ScalarType type)
      : own_(std::move(own)), type_(type) {}
  models::Value forward(std::span<const models::Value> inputs) override {
    return forward_in(type_, *own_, inputs);
  }
  std::vector<models::NamedTensor> parameters() override { return own_->parameters(); }
  std::vector<models::NamedTensor> buffers() override { return own_->buffers(); }
  void train(bool on) override { own_->train(on); }

 private:
  std::shared_ptr<Block> own_;
  at::ScalarType type_;
};

void widen(const std::vector<models::NamedTensor>& tensors) {
  for (const models::NamedTensor& one : tensors)
    if (one.tensor.is_floating_point()) one.tensor.set_data(one.tensor.detach().to(at::kDouble));
}

std::shared_ptr<Block> converted(std::shared_ptr<Block> block, at::ScalarType type) {
  const std::vector<models::NamedTensor> own = block->parameters();
  const bool knows_it = std::any_of(own.begin(), own.end(), [type](const auto& parameter) {
    return parameter.tensor.scalar_type() == type;
  });
  if (type == at::kDouble) {
    widen(own);
    widen(block->buffers());
  } else if (knows_it) {
    return block;
  }
  // Whoever looks for batch norms and embeddings finds the module.
  if (const auto module = models::module_of(block))
    return models::make_block(module, [block, type](std::vector<at::Tensor> inputs) {
      return forward_in(type, *block, std::array<models::Value, 1>{std::move(inputs)});
    });
  return std::make_shared<ConvertedBlock>(std::move(block), type);
}

}  // namespace

models::Blocks in_precision(const models::Blocks& model, const std::string& precision) {
  if (precision == "fp32") return model;
  models::Blocks blocks;
  for (models::BlockSpec spec : model.specs()) {
    spec.make = [make = spec.make, type = tensor::compute_type(precision)] {
      return converted(make(), type);
    };
    blocks.add_block(std::move(spec));
  }
  for (const models::Tie& tie : model.ties()) blocks.tie(tie.alias, tie.owner);
  return blocks;
}

}  // namespace trireme::inline v0::train
