// Your own images, model and loss with all commands: ./shapes train shapes.toml
#include <torch/torch.h>

#include "trireme/trireme.h"

// A disc or a ring of random size and position, with noise; the target says which. Your own data
// would be read from the file or folder `path` (data.path).
trireme::TensorSets draw_shapes(const std::string&, const trireme::DataValues& values) {
  constexpr std::int64_t side = 16;
  const auto draw = [&](std::int64_t count, std::uint64_t seed) -> trireme::input::Fields {
    auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
    const auto drawn = [&](double low, double high) {
      return torch::empty({count, 1, 1}).uniform_(low, high, random) * side;
    };
    const auto ramp = torch::arange(side) + 0.5, radius = drawn(0.2, 0.3);
    const auto x = ramp.view({1, 1, -1}) - drawn(0.3, 0.7);
    const auto y = ramp.view({1, -1, 1}) - drawn(0.3, 0.7);
    const auto distance = (x.square() + y.square()).sqrt() / radius;
    const auto kind = torch::arange(count).remainder(2);
    const auto inside = (distance < 1).logical_and(distance > 0.5 * kind.view({-1, 1, 1}));
    auto images = torch::empty({count, 1, side, side}).normal_(0, values.number("noise"), random);
    return {{"images", images + inside.unsqueeze(1)}, {"targets", kind}};
  };
  return {.train = draw(values.integer("count"), 1), .validation = draw(512, 2)};
}

trireme::Blocks make_cnn(const trireme::ModelValues& values) {
  using namespace torch::nn;
  const std::int64_t width = values.integer("width");
  const auto convolution = [](std::int64_t in, std::int64_t out) {
    return Sequential(Conv2d(Conv2dOptions(in, out, 3).stride(2).padding(1)), GELU());
  };
  trireme::Blocks net;
  net.add("stem", {"images"}, [=] { return convolution(1, width); });  // reads a field of the data
  net.add("middle", [=] { return convolution(width, 2 * width); });    // reads the block before
  net.add("top", [=] { return convolution(2 * width, 4 * width); });
  net.add("flat", [] { return [](torch::Tensor x) { return x.flatten(1); }; });
  return net.add("head", [=] { return Linear(16 * width, 2); });
}

// Summed over the micro-batch, as every loss.
torch::Tensor smoothed(const std::vector<torch::Tensor>& output, const trireme::MicroBatch& micro) {
  using torch::nn::functional::CrossEntropyFuncOptions;
  return torch::nn::functional::cross_entropy(
      output.at(0), micro.field("targets"),
      CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(0.1));
}
torch::Tensor right(const std::vector<torch::Tensor>& output, const trireme::MicroBatch& micro) {
  return (output.at(0).argmax(1) == micro.field("targets")).sum();
}

int main(int argc, char** argv) {
  trireme::App app("shapes");
  app.data("shapes", {{"count", 2048, "images to train on", 2}, {"noise", 0.2, "deviation", 0, 10}},
           draw_shapes,
           {.sample = "image", .items = "samples", .unit = "nats", .counted = "images"});
  app.loss("smoothed", smoothed, right);
  app.model("cnn", {{"width", 8, "channels of the first block", 1}}, make_cnn,
            {.data = "shapes", .loss = "smoothed"});
  return app.run(argc, argv);
}
