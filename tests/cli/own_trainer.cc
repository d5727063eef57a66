// The trireme program with its own all-reduce and models.
#include <ATen/Functions.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <csignal>
#include <memory>

#include "trireme/cli/torch/app.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/models/module_block.h"

namespace {

void around(trireme::comm::Algorithm& a) {
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank - s)).add_from(a.prev(), a.chunk(a.rank - s - 1));
  }
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank + 1 - s)).copy_from(a.prev(), a.chunk(a.rank - s));
  }
}

const auto registered = trireme::register_all_reduce("mine", around);

// Predicts the next byte from the last one, through one hidden layer; tied if asked for.
trireme::Blocks make_bigram(const trireme::ModelValues& values) {
  const std::int64_t width = values.integer("width");
  const double slope = values.number("slope");
  trireme::Blocks net;
  net.add("embed", [=] { return torch::nn::Embedding(256, width); });
  net.add("bend", [=] { return [=](at::Tensor x) { return at::leaky_relu(x, slope); }; });
  net.add("head",
          [=] { return torch::nn::Linear(torch::nn::LinearOptions(width, 256).bias(false)); });
  if (values.boolean("tied")) net.tie("head.weight", "embed.weight");
  return net;
}

// A model with mistakes.
trireme::Blocks make_wrong(const trireme::ModelValues& values) {
  const std::string& how = values.text("how");
  if (how == "key") values.integer("width");
  if (how == "type") values.integer("how");
  trireme::Blocks net;
  net.add("embed", [] { return torch::nn::Embedding(256, 100); });
  return net;
}

// A chain of four blocks. The third one fails in its sixth training pass, which is in the second
// step with four micro-batches per step.
trireme::Blocks make_stumbling(const trireme::ModelValues& values) {
  const std::string how = values.text("how");
  trireme::Blocks net;
  net.add("embed", [] { return torch::nn::Embedding(256, 8); });
  net.add("still", [] { return [](at::Tensor x) { return x * 2; }; });
  net.add("stumbles", [how] {
    return [how, passes = std::make_shared<int>(0)](at::Tensor x) {
      const at::Tensor bent = at::tanh(x);
      if (!at::GradMode::is_enabled() || ++*passes != 6) return bent;
      if (how == "killed") std::raise(SIGKILL);
      return how == "reshapes" ? bent.narrow(2, 0, 4) : bent;
    };
  });
  net.add("head", [] { return torch::nn::Linear(8, 256); });
  return net;
}

// Images of horizontal or vertical bars, and each image's brightness.
trireme::TensorSets read_bars(const std::string&, const trireme::DataValues& values) {
  const std::int64_t side = values.integer("side");
  const auto bars = [side](std::int64_t first, std::int64_t end) -> trireme::input::Fields {
    const at::Tensor number = at::arange(first, end), kind = number.remainder(2);
    const at::Tensor place = number.floor_divide(2).remainder(side);
    const at::Tensor line = at::arange(side).unsqueeze(0).eq(place.unsqueeze(1)).to(at::kFloat);
    const at::Tensor across = line.view({-1, 1, side, 1}).expand({-1, 1, side, side});
    const at::Tensor light = number.remainder(3).to(at::kFloat) + 1;
    const at::Tensor images = at::where(kind.view({-1, 1, 1, 1}).eq(0), across, across.mT());
    return {{"images", images * light.view({-1, 1, 1, 1})}, {"light", light}, {"targets", kind}};
  };
  return {.train = bars(0, 48), .validation = bars(48, 68)};
}

// The second block also reads another field.
trireme::Blocks make_bars_net(const trireme::ModelValues& values) {
  const std::int64_t width = values.integer("width");
  trireme::Blocks net;
  net.add("stem", {"images"},
          [=] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(1, width, 3).padding(1)); });
  net.add("scale", {"stem", "light"}, [] {
    return [](at::Tensor x, at::Tensor light) { return at::relu(x / light.view({-1, 1, 1, 1})); };
  });
  net.add("pool", [] {
    return [](at::Tensor x) { return at::cat({x.amax(3).amin(2), x.amax(2).amin(2)}, 1); };
  });
  net.add("head", [=] { return torch::nn::Linear(2 * width, 2); });
  return net;
}

at::Tensor squares(const trireme::models::Value& output, const trireme::MicroBatch& micro) {
  return (output.at(0) - at::one_hot(micro.field("targets"), 2)).pow(2).sum();
}

// Sequences for a built-in model.
trireme::TensorSets read_letters(const std::string&, const trireme::DataValues&) {
  const auto letters = [](std::int64_t rows) -> trireme::input::Fields {
    const at::Tensor text = at::arange(rows * 17).remainder(7).view({rows, 17}) + 97;
    return {{"tokens", text.narrow(1, 0, 16)}, {"targets", text.narrow(1, 1, 16)}};
  };
  return {.train = letters(32), .validation = letters(8)};
}

}  // namespace

int main(int argc, char** argv) {
  trireme::App app("own_trainer");
  app.model("bigram",
            {{"width", 16, "channels", 1, 1024},
             {"slope", 0.1, "of negative values"},
             {"tied", false, "one table for bytes in and out"},
             {"block", 16, "bytes of a sequence", 1}},
            make_bigram);
  app.model("wrong", {{"how", "shape", "which mistake: shape, key, type"}}, make_wrong);
  app.model("stumbling", {{"how", "", "what happens: killed, reshapes, nothing"}}, make_stumbling);
  app.model("bars-net", {{"width", 4, "channels", 1}}, make_bars_net,
            {.data = "bars", .loss = "squares"});
  app.data("bars", {{"side", 6, "pixels", 3}}, read_bars);
  app.data("letters", {}, read_letters, {.items_per_sample = 16});
  app.loss("squares", squares, trireme::train::class_matches());
  return app.run(argc, argv);
}
