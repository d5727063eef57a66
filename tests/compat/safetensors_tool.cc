// The C++ half of safetensors_compat.py:
//     safetensors_tool write DIR     a module's weights, its input and output, a tensor per type
//     safetensors_tool read FILE     each tensor's name, type, shape and sum of bytes, and the hash
#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/base/weights_hash.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/format/safetensors.h"
#include "trireme/tensor/convert.h"

namespace {

using namespace trireme;
using format::TensorView;

void write_views(const std::string& path,
                 const std::vector<std::pair<std::string, at::Tensor>>& all) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : all) {
    views.push_back({name,
                     tensor::dtype_of(tensor),
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  std::ofstream file(path, std::ios::binary);
  format::write_safetensors(views, {{"format", "pt"}, {"note", "gr\xC3\xBC\xC3\x9F"}},
                            [&](std::span<const std::byte> bytes) {
                              file.write(reinterpret_cast<const char*>(bytes.data()),
                                         static_cast<std::streamsize>(bytes.size()));
                            });
}

int write(const std::string& directory) {
  at::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)),
                            torch::nn::BatchNorm2d(4));
  const at::Tensor input = at::randn({2, 1, 8, 8});
  net->forward(input);  // updates the running statistics
  net->eval();
  const at::Tensor output = net->forward(input).detach();
  save_weights(directory + "/module.safetensors", *net);
  write_views(directory + "/example.safetensors", {{"input", input}, {"output", output}});
  const at::Tensor base = at::tensor({1, 0, 3}, at::kInt);
  std::vector<std::pair<std::string, at::Tensor>> types;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt,
                          at::kShort, at::kChar, at::kByte, at::kBool}) {
    types.emplace_back(std::string(name_of(tensor::dtype_of(type))), base.to(type).contiguous());
  }
  types.emplace_back("scalar", at::scalar_tensor(2.5));
  types.emplace_back("empty", at::empty({0, 3}));
  types.emplace_back("na\"me \xC3\xBC\n", at::ones({1}));
  write_views(directory + "/types.safetensors", types);
  return 0;
}

int read(const std::string& path) {
  const format::SafetensorsFile file(path);
  for (const TensorView& tensor : file.tensors()) {
    unsigned long sum = 0;
    for (const std::byte byte : tensor.bytes) sum = sum * 31 + std::to_integer<unsigned>(byte);
    std::cout << tensor.name << "|" << name_of(tensor.dtype) << "|";
    for (const std::int64_t dim : tensor.shape) std::cout << dim << ",";
    std::cout << "|" << sum << "\n";
  }
  std::cout << weights_hash(file.tensors()) << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::string(argv[1]) == "write") return write(argv[2]);
    if (argc == 3 && std::string(argv[1]) == "read") return read(argv[2]);
    std::cerr << "safetensors_tool write DIR | read FILE\n";
    return 2;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_code();
  }
}
