// The layer norm of a transformer's block: its two parameters and its calls. Internal to models/.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/models/layer_factory.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::inline v0::models {

/// The type of the residual stream, and of norms: at least fp32.
inline at::ScalarType stream_type(at::ScalarType compute) {
  return compute == at::kDouble ? at::kDouble : at::kFloat;
}

struct Norm {
  at::Tensor weight, bias;
  std::shared_ptr<const LayerFactory> layers;
  at::ScalarType out_type;
  double epsilon;
  Norm(std::shared_ptr<const LayerFactory> own_layers, std::int64_t width, bool with_bias,
       at::ScalarType compute, double own_epsilon = 1e-5)
      : layers(std::move(own_layers)), out_type(compute), epsilon(own_epsilon) {
    weight = constant_leaf({width}, 1.0, stream_type(compute));
    if (with_bias) bias = constant_leaf({width}, 0.0, stream_type(compute));
  }
  /// Result in the compute type.
  at::Tensor forward(const at::Tensor& x) const {
    return tensor::layer_norm(x, used(weight), used(bias), epsilon, out_type);
  }
  /// Returns x itself, for its other uses, and its norm.
  std::pair<at::Tensor, at::Tensor> stream_and_norm(const at::Tensor& x) const {
    return tensor::stream_layer_norm(x, used(weight), used(bias), epsilon, out_type);
  }
  /// Result in the stream's type.
  at::Tensor forward_stream(const at::Tensor& x) const {
    return tensor::layer_norm(x, used(weight), used(bias), epsilon, stream_type(out_type));
  }
  /// Returns x + update, and its norm.
  std::pair<at::Tensor, at::Tensor> add_forward(const at::Tensor& x,
                                                const at::Tensor& update) const {
    return tensor::add_layer_norm(x, update, used(weight), used(bias), epsilon);
  }
  void append_parameters(const std::string& name, std::vector<NamedTensor>& out) const {
    out.push_back({name + ".weight", weight, false});
    if (bias.defined()) out.push_back({name + ".bias", bias, false});
  }

 private:
  at::Tensor used(const at::Tensor& parameter) const {
    return parameter.defined() ? layers->whole(parameter) : parameter;
  }
};

}  // namespace trireme::inline v0::models
