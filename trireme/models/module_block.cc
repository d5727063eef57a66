#include "trireme/models/module_block.h"

#include "trireme/base/error.h"

namespace trireme::inline v0::models {
namespace {

class ModuleBlock final : public Block {
 public:
  ModuleBlock(std::shared_ptr<torch::nn::Module> module, ForwardFunction forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  Value forward(std::span<const Value> inputs) override {
    std::vector<at::Tensor> tensors;
    for (const Value& value : inputs) tensors.insert(tensors.end(), value.begin(), value.end());
    return forward_(std::move(tensors));
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> result;
    if (!module_) return result;
    for (const auto& item : module_->named_parameters())
      if (item.value().requires_grad())
        result.push_back({item.key(), item.value(), item.value().dim() >= 2});
    return result;
  }
  std::vector<NamedTensor> buffers() override {
    std::vector<NamedTensor> result;
    if (!module_) return result;
    for (const auto& item : module_->named_buffers())
      result.push_back({item.key(), item.value(), false});
    for (const auto& item : module_->named_parameters())
      if (!item.value().requires_grad())
        result.push_back(
            {.name = item.key(), .tensor = item.value(), .decay = false, .frozen = true});
    return result;
  }
  void train(bool on) override {
    if (module_) module_->train(on);
  }
  const std::shared_ptr<torch::nn::Module>& module() const noexcept { return module_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  ForwardFunction forward_;
};

}  // namespace

std::shared_ptr<Block> make_block(std::shared_ptr<torch::nn::Module> module,
                                  ForwardFunction forward) {
  return std::make_shared<ModuleBlock>(std::move(module), std::move(forward));
}

std::shared_ptr<torch::nn::Module> module_of(const std::shared_ptr<Block>& block) {
  const auto own = std::dynamic_pointer_cast<ModuleBlock>(block);
  return own ? own->module() : nullptr;
}

void throw_wrong_inputs(std::size_t takes, std::size_t got) {
  throw ConfigError(
      "a block that takes " + std::to_string(takes) + " tensors was given " + std::to_string(got),
      {.operation = "model", .advice = "Name the values it reads in BlockSpec::reads."});
}

Blocks& Blocks::add_block(BlockSpec spec) {
  for (const auto& known : specs_) {
    if (known.name != spec.name) continue;
    throw ConfigError("two blocks are called '" + spec.name + "'",
                      {.operation = "model", .advice = "Give every block a name of its own."});
  }
  if (spec.reads.empty()) {
    spec.reads = {specs_.empty() ? std::string("tokens") : specs_.back().writes};
  }
  if (spec.writes.empty()) spec.writes = spec.name;
  specs_.push_back(std::move(spec));
  return *this;
}

Blocks& Blocks::tie(std::string alias, std::string owner) {
  ties_.push_back({std::move(alias), std::move(owner)});
  return *this;
}

}  // namespace trireme::inline v0::models
