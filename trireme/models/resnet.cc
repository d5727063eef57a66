#include "trireme/models/figures.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "trireme/base/refuse.h"
#include "trireme/models/layer_factory.h"
#include "trireme/models/module_block.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"

// Legend: B images, C channels, H and W rows and columns.
namespace trireme::inline v0::models {
namespace {

struct ConvShape {
  std::int64_t in = 0, out = 0, kernel = 3, stride = 1, side = 0;  // side: of its output
  std::int64_t weights() const { return in * out * kernel * kernel; }
  std::int64_t outputs() const { return out * side * side; }  // of an image
};

// One block as numbers: its layers are built from them, and its sizes and flops computed.
struct BlockShape {
  std::string name;
  std::vector<ConvShape> convs;  // a third one is the shortcut's
  std::int64_t parameters() const {
    std::int64_t sum = 0;
    for (const ConvShape& conv : convs) sum += conv.weights() + 2 * conv.out;
    return sum;
  }
};

std::vector<BlockShape> shapes(const ResnetConfig& config) {
  std::vector<BlockShape> all = {{"stem", {{.in = 3, .out = config.width, .side = config.side}}}};
  std::int64_t in = config.width, out = config.width, side = config.side;
  for (std::size_t stage = 0; stage < config.layers.size(); ++stage, out *= 2) {
    for (int i = 0; i < config.layers[stage]; ++i) {
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      side /= stride;
      BlockShape block{"layer" + std::to_string(stage + 1) + "." + std::to_string(i),
                       {{.in = in, .out = out, .stride = stride, .side = side},
                        {.in = out, .out = out, .side = side}}};
      if (stride != 1 || in != out)
        block.convs.push_back({.in = in, .out = out, .kernel = 1, .stride = stride, .side = side});
      all.push_back(std::move(block));
      in = out;
    }
  }
  return all;
}

std::int64_t features(const ResnetConfig& config) { return config.width * 8; }
std::int64_t head_parameters(const ResnetConfig& config) {
  return (features(config) + 1) * config.classes;
}

struct Conv : torch::nn::Module {
  // Kaiming normal with fan-out (He et al. 2015, arXiv:1502.01852), as torchvision's.
  Conv(const LayerContext& context, const std::string& name, const ConvShape& own) : shape(own) {
    const auto fan_out = static_cast<double>(shape.out * shape.kernel * shape.kernel);
    weight =
        register_parameter("weight", normal_leaf({shape.out, shape.in, shape.kernel, shape.kernel},
                                                 std::sqrt(2 / fan_out), context.type, context.seed,
                                                 context.block + "." + name + ".weight"));
  }
  at::Tensor forward(const at::Tensor& x) const {
    return tensor::convolution(x, weight, shape.stride, (shape.kernel - 1) / 2);
  }
  ConvShape shape;
  at::Tensor weight;
};

torch::nn::BatchNorm2d norm_of(const LayerContext& context, std::int64_t channels) {
  torch::nn::BatchNorm2d norm(channels);
  if (context.type == at::kDouble) norm->to(at::kDouble);
  return norm;
}

struct Stem : torch::nn::Module {
  Stem(const LayerContext& context, const BlockShape& block) {
    conv1 = register_module("conv1", std::make_shared<Conv>(context, "conv1", block.convs[0]));
    bn1 = register_module("bn1", norm_of(context, block.convs[0].out));
  }
  at::Tensor forward(const at::Tensor& images_BCHW) {
    return bn1->forward(conv1->forward(images_BCHW.to(conv1->weight.scalar_type()))).relu_();
  }
  std::shared_ptr<Conv> conv1;
  torch::nn::BatchNorm2d bn1{nullptr};
};

struct Residual : torch::nn::Module {
  Residual(const LayerContext& context, const BlockShape& block) {
    const std::int64_t channels = block.convs[0].out;
    conv1 = register_module("conv1", std::make_shared<Conv>(context, "conv1", block.convs[0]));
    bn1 = register_module("bn1", norm_of(context, channels));
    conv2 = register_module("conv2", std::make_shared<Conv>(context, "conv2", block.convs[1]));
    bn2 = register_module("bn2", norm_of(context, channels));
    if (block.convs.size() < 3) return;
    const auto downsample = register_module("downsample", std::make_shared<torch::nn::Module>());
    short_conv = downsample->register_module(
        "0", std::make_shared<Conv>(context, "downsample.0", block.convs[2]));
    short_norm = downsample->register_module("1", norm_of(context, channels));
  }
  at::Tensor forward(const at::Tensor& x_BCHW) {
    const at::Tensor inner = bn1->forward(conv1->forward(x_BCHW)).relu_();
    const at::Tensor shortcut =
        short_conv ? short_norm->forward(short_conv->forward(x_BCHW)) : x_BCHW;
    return (bn2->forward(conv2->forward(inner)) + shortcut).relu_();
  }
  std::shared_ptr<Conv> conv1, conv2, short_conv;
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, short_norm{nullptr};
};

struct Classifier : torch::nn::Module {
  Classifier(const LayerContext& context, std::int64_t in, std::int64_t classes) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    const auto leaf = [&](at::IntArrayRef sizes, const std::string& name) {
      const at::Tensor values = at::empty(sizes, at::TensorOptions(context.type));
      tensor::fill_uniform(values, context.seed, context.block + "." + name, -bound, bound);
      return register_parameter(name, values);
    };
    weight = leaf({classes, in}, "weight");
    bias = leaf({classes}, "bias");
  }
  at::Tensor forward(const at::Tensor& x_BCHW) const {
    const at::Tensor mean_BC = at::mean(x_BCHW, {2, 3});
    return tensor::linear(mean_BC, weight, bias);
  }
  at::Tensor weight, bias;
};

void check(const ResnetConfig& config) {
  if (config.width < 1 || config.classes < 1 || config.side < 1 ||
      *std::min_element(config.layers.begin(), config.layers.end()) < 1)
    refuse("config", "a ResNet needs widths, classes and layers of at least 1", "Set model.width.");
  if (config.side % 8 != 0)
    refuse("config",
           "images of side " + std::to_string(config.side) + " cannot be halved three times",
           "Use a multiple of 8.");
}

}  // namespace

Blocks make_resnet(const ResnetConfig& config) {
  check(config);
  const auto type = tensor::compute_type(config.precision);
  Blocks blocks;
  for (const BlockShape& shape : shapes(config)) {
    const LayerContext context{.block = shape.name, .seed = config.seed, .type = type};
    if (shape.name == "stem")
      blocks.add(shape.name, {"images"}, [=] { return std::make_shared<Stem>(context, shape); });
    else
      blocks.add(shape.name, [=] { return std::make_shared<Residual>(context, shape); });
  }
  const LayerContext context{.block = "head", .seed = config.seed, .type = type};
  blocks.add("head", [=, in = features(config), classes = config.classes] {
    return std::make_shared<Classifier>(context, in, classes);
  });
  return blocks;
}

std::int64_t num_parameters(const ResnetConfig& config) {
  std::int64_t sum = head_parameters(config);
  for (const BlockShape& block : shapes(config)) sum += block.parameters();
  return sum;
}

std::int64_t largest_neighbours(const ResnetConfig& config) {
  std::int64_t largest = 0, before = 0;
  for (const BlockShape& block : shapes(config)) {
    largest = std::max(largest, before + block.parameters());
    before = block.parameters();
  }
  return std::max(largest, before + head_parameters(config));
}

double training_flops(const ResnetConfig& config, std::int64_t images) {
  double products = static_cast<double>(features(config) * config.classes);
  for (const BlockShape& block : shapes(config))
    for (const ConvShape& conv : block.convs)
      products += static_cast<double>(conv.weights() * conv.side * conv.side);
  return 3 * 2 * products * static_cast<double>(images);
}

// Blocks keep every convolution's output, for its norm, and every ReLU's, for the next layers.
std::vector<BlockActivations> block_activations(const ResnetConfig& config, std::int64_t images) {
  const auto bytes =
      static_cast<std::int64_t>(c10::elementSize(tensor::compute_type(config.precision)));
  std::vector<BlockActivations> blocks;
  std::int64_t inputs = 3 * config.side * config.side;
  for (const BlockShape& block : shapes(config)) {
    const bool stem = block.name == "stem";
    const std::size_t relus = stem ? 1 : 2;
    std::int64_t values = stem ? inputs : 0, products = 0;
    for (std::size_t i = 0; i < block.convs.size(); ++i) {
      const ConvShape& conv = block.convs[i];
      values += conv.outputs() * (i < relus ? 2 : 1);
      products += conv.weights() * conv.side * conv.side;
    }
    blocks.push_back({.kept = images * values * bytes,
                      .inputs = images * inputs * bytes,
                      .forward_work = 2.0 * static_cast<double>(images * products)});
    inputs = block.convs[relus - 1].outputs();
  }
  blocks.push_back(
      {.inputs = images * inputs * bytes,  // the head
       .forward_work = 2.0 * static_cast<double>(images * features(config) * config.classes)});
  return blocks;
}

std::vector<Kernel> kernels(const ResnetConfig& config, std::int64_t images) {
  std::vector<Kernel> all;
  for (const BlockShape& block : shapes(config))
    for (const ConvShape& conv : block.convs)
      all.push_back(
          {"convolution", {images, conv.in, conv.out, conv.kernel, conv.stride, conv.side}});
  return all;
}

}  // namespace trireme::inline v0::models
