// The MLP of a transformer's layer and of an expert: width -> hidden -> width, with GELU in between
// or gated (Shazeer 2020, arXiv:2002.05202).
//
// The first layer of a gated MLP is fused: rows 0 ... hidden - 1 of "up" are the gate, the other
// `hidden` rows are the gated values. A tensor-parallel rank holds the same columns of both.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/models/layer_factory.h"

namespace trireme::inline v0::models {

/// W2 gelu(W1 x); W2 (silu(W1 x) * W3 x); W2 (gelu(W1 x) * W3 x). GELU is the tanh form.
enum class Activation : std::uint8_t { Gelu, Swiglu, Geglu };

/// "gelu", "swiglu", "geglu"; ConfigError for any other.
Activation activation_of(const std::string& name);

/// `hidden` if it is not 0; else 4 x width, or if gated 8/3 x width rounded up to a multiple of 64,
/// which has about as many parameters (LLaMA, Touvron et al. 2023, arXiv:2302.13971).
std::int64_t hidden_width(std::int64_t width, std::int64_t hidden, Activation activation);

struct FeedForwardSpec {
  std::string name;  // "mlp": parameters are "mlp.up.weight" ..., "mlp.down.weight" ...
  std::int64_t width = 0, hidden = 0;
  Activation activation = Activation::Gelu;
  bool bias = false;
  double stddev = 0.02, stddev_down = 0.02;  // of the initial weights of up and of down

  bool is_gated() const { return activation != Activation::Gelu; }
  /// Output width of `up`: hidden, or twice that if gated.
  std::int64_t middle() const { return (is_gated() ? 2 : 1) * hidden; }
  std::int64_t parameters() const {
    return width * (middle() + hidden) + (bias ? middle() + width : 0);
  }
  /// Values per row that are kept for backward: up's output and down's input.
  std::int64_t kept() const { return middle() + hidden; }
};

class FeedForward {
 public:
  FeedForward(const LayerFactory& layers, const LayerContext& context, const FeedForwardSpec& spec);
  /// x [..., width].
  at::Tensor forward(const at::Tensor& x) const;
  void append_parameters(std::vector<NamedTensor>& out) const;

 private:
  Activation activation_;
  std::unique_ptr<Linear> up_, down_;
};

}  // namespace trireme::inline v0::models
