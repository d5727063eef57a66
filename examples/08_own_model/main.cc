// Your own model with all commands of trireme: ./my_trainer train my.toml --ranks 2
#include <torch/torch.h>

#include "trireme/trireme.h"

struct Embed : torch::nn::Module {
  Embed(std::int64_t block, std::int64_t width)
      : token(register_module("token", torch::nn::Embedding(256, width))),
        place(register_module("place", torch::nn::Embedding(block, width))) {}
  torch::Tensor forward(const torch::Tensor& tokens) {
    return token(tokens) + place(torch::arange(tokens.size(1), tokens.options()));
  }
  torch::nn::Embedding token, place;
};
struct Layer : torch::nn::Module {
  explicit Layer(std::int64_t width)
      : qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto part = qkv(torch::layer_norm(x, x.size(2))).chunk(3, 2);
    const auto y = x + torch::scaled_dot_product_attention(part[0], part[1], part[2], {}, 0, true);
    return y + down(torch::gelu(up(torch::layer_norm(y, y.size(2)))));
  }
  torch::nn::Linear qkv, up, down;
};
trireme::Blocks make_my_gpt(const trireme::ModelValues& values) {
  const std::int64_t block = values.block(), width = values.integer("width");
  trireme::Blocks net;
  net.add("embed", [=] { return Embed(block, width); });
  for (std::int64_t i = 0; i < values.integer("layers"); ++i)
    net.add("layer." + std::to_string(i), [=] { return Layer(width); });
  return net.add("head", [=] { return torch::nn::Linear(width, 256); });
}
int main(int argc, char** argv) {
  trireme::App app("my_trainer");
  app.model("my-gpt", {{"width", 64, "channels", 1}, {"layers", 2, "blocks", 0}}, make_my_gpt);
  return app.run(argc, argv);
}
