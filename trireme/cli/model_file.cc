#include "trireme/cli/model_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"
#include "trireme/storage/saved_tensors.h"

namespace trireme::inline v0::cli {

namespace {

using storage::CheckpointFolder;

ModelWeights weights_in(const std::string& path) {
  const auto file = std::make_shared<format::SafetensorsFile>(path);
  ModelWeights weights{.path = path, .tensors = file->tensors()};
  for (HashedTensor& tensor : weights.tensors) tensor.bytes = {};
  weights.read = [file](const HashedTensor& tensor) {
    const std::span<const std::byte> bytes = file->find(tensor.name)->bytes;
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  weights.verify = [] {};  // it has no hashes
  return weights;
}

[[noreturn]] void refuse_place(const std::string& place) {
  std::error_code missing;
  const bool there = storage::has_scheme(place) || std::filesystem::exists(place, missing);
  throw ConfigError(
      there ? place + " holds no checkpoint" : "there is no " + place,
      {.operation = "inspect",
       .advice = there ? "Train it first, or to its first checkpoint; or name a checkpoint.path."
                       : "Name a run's folder, a Checkpointer's, one of its step-... folders or a "
                         ".safetensors file."});
}

}  // namespace

ModelWeights model_weights(const std::string& place) {
  std::error_code missing;
  if (!storage::has_scheme(place) && std::filesystem::is_regular_file(place, missing))
    return weights_in(place);
  const auto found = find_checkpoint(place);
  if (!found) refuse_place(place);
  return model_weights(*found);
}

ModelWeights model_weights(const FoundCheckpoint& found) {
  const CheckpointFolder& folder = found.folder;
  const std::int64_t step = found.step;
  const auto saved = std::make_shared<storage::SavedTensors>(folder, folder.look(step));
  ModelWeights weights{.path = found.path() + "/" + storage::kModelFile};
  for (const auto* tensor : saved->tensors(storage::kModelFile))
    weights.tensors.push_back({tensor->name, tensor->dtype, tensor->shape, {}});
  weights.read = [saved](const HashedTensor& tensor) {
    return saved->read(*saved->find(storage::kModelFile, tensor.name));
  };
  weights.verify = [folder, step] { folder.verify(step); };
  return weights;
}

std::string hash_of(const ModelWeights& weights) {
  std::vector<HashedTensor> tensors = weights.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const HashedTensor& a, const HashedTensor& b) { return a.name < b.name; });
  WeightsHash sum;
  for (HashedTensor& tensor : tensors) {
    const std::vector<std::byte> bytes = weights.read(tensor);
    tensor.bytes = bytes;
    sum.add(tensor);
  }
  return sum.finish();
}

}  // namespace trireme::inline v0::cli
