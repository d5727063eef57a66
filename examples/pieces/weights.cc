// save_weights and load_weights: a module's weights as safetensors, which Python reads and writes:
// load_state_dict(safetensors.torch.load_file(FILE)). Loading is strict: every name, shape and
// type.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                            torch::nn::Linear(4, 2));
  net->to(torch::kDouble);
  return net;
}

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "piece_weights FILE\n"), 2;
  torch::nn::Sequential net = make_net(), other = make_net();
  for (torch::Tensor& one : net->parameters())
    one.detach().copy_(torch::sin(torch::arange(one.numel(), torch::kDouble)).view(one.sizes()));
  const torch::Tensor x = torch::cos(torch::arange(15, torch::kDouble)).view({5, 3});
  net->forward(x);  // the batch norm's statistics are part of it
  trireme::save_weights(argv[1], *net);

  trireme::load_weights(argv[1], *other);
  other->eval();
  const torch::Tensor y = other->forward(x).flatten();
  for (std::int64_t i = 0; i < y.numel(); ++i) std::printf("y %.9g\n", y[i].item<double>());
}
