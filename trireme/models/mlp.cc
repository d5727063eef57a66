#include "trireme/models/models.h"

#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/models/layer_factory.h"
#include "trireme/models/module_block.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::models {
namespace {

class MlpLayer final : public Block {
 public:
  MlpLayer(const LayerContext& context, const LinearSpec& spec, bool gelu)
      : linear_(current_layers()->linear(context, spec)), gelu_(gelu) {}
  Value forward(std::span<const Value> inputs) override {
    const at::Tensor& x = inputs[0][0];
    return {gelu_ ? linear_->forward_gelu(x) : linear_->forward(x)};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    linear_->append_parameters(all);
    return all;
  }
  std::vector<NamedTensor> buffers() override { return {}; }
  void train(bool) override {}

 private:
  std::unique_ptr<Linear> linear_;
  bool gelu_;
};

}  // namespace

Blocks make_mlp(const MlpConfig& config) {
  if (config.widths.size() < 2) {
    throw ConfigError(
        "an MLP needs at least two widths",
        {.operation = "config", .advice = "Give the input's and the output's width."});
  }
  for (const std::int64_t width : config.widths)
    if (width < 1)
      throw ConfigError("an MLP cannot be " + std::to_string(width) + " wide",
                        {.operation = "config", .advice = "Use widths of 1 or more."});
  const auto type = tensor::compute_type(config.precision);
  Blocks blocks;
  for (std::size_t i = 0; i + 1 < config.widths.size(); ++i) {
    const LayerContext context{
        .block = "layer." + std::to_string(i), .seed = config.seed, .type = type};
    // In pairs: the first layer is cut by columns, the second takes that shard by rows.
    const bool first = i % 2 == 0, has_second = i + 2 < config.widths.size();
    const LinearSpec spec{.name = "linear",
                          .in = config.widths[i],
                          .out = config.widths[i + 1],
                          .bias = true,
                          .stddev = 1.0 / std::sqrt(static_cast<double>(config.widths[i])),
                          .cut = !first       ? Cut::Rows
                                 : has_second ? Cut::Columns
                                              : Cut::None};
    const bool gelu = i + 2 < config.widths.size();
    blocks.add(context.block, {i == 0 ? config.input : "layer." + std::to_string(i - 1)},
               [=] { return std::make_shared<MlpLayer>(context, spec, gelu); });
  }
  return blocks;
}

}  // namespace trireme::inline v0::models
