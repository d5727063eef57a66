#include "trireme/models/feed_forward.h"

#include "trireme/base/error.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::inline v0::models {

Activation activation_of(const std::string& name) {
  if (name == "gelu") return Activation::Gelu;
  if (name == "swiglu") return Activation::Swiglu;
  if (name == "geglu") return Activation::Geglu;
  throw ConfigError("there is no activation '" + name + "'",
                    {.operation = "config", .advice = "Use gelu, swiglu or geglu."});
}

std::int64_t hidden_width(std::int64_t width, std::int64_t hidden, Activation activation) {
  if (hidden > 0) return hidden;
  if (activation == Activation::Gelu) return 4 * width;
  const std::int64_t least = (8 * width + 2) / 3;
  return (least + 63) / 64 * 64;
}

FeedForward::FeedForward(const LayerFactory& layers, const LayerContext& context,
                         const FeedForwardSpec& spec)
    : activation_(spec.activation),
      up_(layers.linear(context, {.name = spec.name + ".up",
                                  .in = spec.width,
                                  .out = spec.middle(),
                                  .bias = spec.bias,
                                  .stddev = spec.stddev,
                                  .cut = Cut::Columns,
                                  .parts = spec.is_gated() ? 2 : 1})),
      down_(layers.linear(context, {.name = spec.name + ".down",
                                    .in = spec.hidden,
                                    .out = spec.width,
                                    .bias = spec.bias,
                                    .stddev = spec.stddev_down,
                                    .cut = Cut::Rows})) {}

at::Tensor FeedForward::forward(const at::Tensor& x) const {
  if (activation_ == Activation::Gelu) return down_->forward(up_->forward_gelu(x));
  const auto gate = activation_ == Activation::Swiglu ? kernel::Gate::Silu : kernel::Gate::Gelu;
  return down_->forward(tensor::gated(gate, up_->forward(x)));
}

void FeedForward::append_parameters(std::vector<NamedTensor>& out) const {
  up_->append_parameters(out);
  down_->append_parameters(out);
}

}  // namespace trireme::inline v0::models
