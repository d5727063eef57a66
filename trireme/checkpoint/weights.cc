#include <torch/nn/module.h>

#include <cstring>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/shape_text.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/format/safetensors.h"
#include "trireme/storage/file_system.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0 {
namespace {

using format::TensorView;

// Parameters and buffers by name, as Python's state_dict(); a shared tensor has all its names.
std::vector<std::pair<std::string, at::Tensor>> tensors_of(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  std::erase_if(tensors, [](const auto& item) { return !item.second.defined(); });
  return tensors;
}

[[noreturn]] void refuse_weights(const std::string& path, const std::string& what) {
  throw CheckpointError(
      path + ": " + what,
      {.operation = "load_weights", .advice = "Load it into the module that it was saved from."});
}

}  // namespace

void save_weights(const std::string& path, const torch::nn::Module& module) {
  std::vector<at::Tensor> alive;
  std::vector<TensorView> views;
  for (const auto& [name, value] : tensors_of(module)) {
    alive.push_back(value.detach().cpu().contiguous());
    const at::Tensor& tensor = alive.back();
    views.push_back({name,
                     tensor::dtype_of(tensor),
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  const auto storage = storage::local_file_system();
  const std::string temporary = path + ".tmp";
  try {
    const auto file = storage->create(temporary);
    format::write_safetensors(views, {{"format", "pt"}},
                              [&](std::span<const std::byte> bytes) { file->write(bytes); });
    file->finish();
    storage->rename(temporary, path);
    const auto folder = std::filesystem::path(path).parent_path();
    storage->sync(folder.empty() ? "." : folder.string());
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

void load_weights(const std::string& path, torch::nn::Module& module) {
  const format::SafetensorsFile file(path);
  const auto tensors = tensors_of(module);
  for (const auto& [name, value] : tensors) {  // check all before changing any
    const TensorView* saved = file.find(name);
    if (saved == nullptr) refuse_weights(path, "it has no tensor \"" + name + "\"");
    const DType dtype = tensor::dtype_of(value);
    if (saved->dtype != dtype || value.sizes() != saved->shape)
      refuse_weights(path, "tensor \"" + name + "\" is " + tensor_text(saved->dtype, saved->shape) +
                               ", and " + tensor_text(dtype, value.sizes()) + " is needed");
  }
  if (file.tensors().size() != tensors.size()) {
    for (const TensorView& saved : file.tensors()) {
      const auto same = [&](const auto& item) { return item.first == saved.name; };
      if (std::none_of(tensors.begin(), tensors.end(), same)) {
        refuse_weights(path, "it has a tensor \"" + saved.name + "\" that the module has not");
      }
    }
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : tensors) {
    const TensorView* saved = file.find(name);
    at::Tensor copy = at::empty(value.sizes(), value.options().device(at::kCPU));
    if (!saved->bytes.empty()) {
      std::memcpy(copy.data_ptr(), saved->bytes.data(), saved->bytes.size());
    }
    tensor::copy_elements(value.detach(), copy);
  }
}

}  // namespace trireme::inline v0
