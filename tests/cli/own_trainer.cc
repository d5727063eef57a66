// The program trireme with an all-reduce and models of its own.
#include <ATen/Functions.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <csignal>
#include <memory>

#include "trireme/cli/app.h"
#include "trireme/comm/registry.h"
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

// The next byte from the last one alone, through one hidden layer; tied if asked for.
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

// A chain of four blocks; the third one goes wrong in its sixth training pass, which with four
// micro-batches a step is in the second step.
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
  return app.run(argc, argv);
}
