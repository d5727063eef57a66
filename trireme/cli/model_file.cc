#include "trireme/cli/model_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/cli/checkpoints.h"
#include "trireme/format/safetensors.h"
#include "trireme/storage/saved_tensors.h"

namespace trireme::inline v0::cli {

namespace {

using storage::CheckpointFolder;

ModelWeights weights_of(const CheckpointFolder& folder, std::int64_t step) {
  const auto saved = std::make_shared<storage::SavedTensors>(folder, folder.look(step));
  ModelWeights weights{.path = folder.path_of(step) + "/" + storage::kModelFile};
  for (const auto* tensor : saved->tensors(storage::kModelFile))
    weights.tensors.push_back({tensor->name, tensor->dtype, tensor->shape, {}});
  weights.read = [saved](const HashedTensor& tensor) {
    return saved->read(*saved->find(storage::kModelFile, tensor.name));
  };
  weights.verify = [folder, step] { folder.verify(step); };
  return weights;
}

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

// The newest checkpoint below an address, or the one that its last part names.
ModelWeights model_elsewhere(const std::string& place) {
  const auto slash = place.find_last_of('/', place.find_last_not_of('/'));
  if (const auto step = storage::step_of_folder(place.substr(slash + 1)))
    return weights_of(CheckpointFolder(storage::open_location(place.substr(0, slash))), *step);
  const CheckpointFolder folder(storage::open_location(place));
  const std::vector<std::int64_t> steps = folder.steps();
  if (steps.empty())
    throw ConfigError(place + " holds no checkpoint",
                      {.operation = "inspect",
                       .advice = "Give the checkpoint.path of a run, or one of its step-... "
                                 "folders."});
  return weights_of(folder, steps.back());
}

}  // namespace

ModelWeights model_weights(const std::string& place) {
  if (storage::has_scheme(place)) return model_elsewhere(place);
  std::error_code missing;
  if (std::filesystem::is_regular_file(place, missing)) return weights_in(place);
  if (const std::string elsewhere = storage::checkpoint_path_of(place); !elsewhere.empty())
    return model_elsewhere(elsewhere);
  const auto found = find_checkpoint(place);
  if (!found) {
    const bool there = std::filesystem::exists(place, missing);
    throw ConfigError(there ? place + " holds no checkpoint" : "there is no " + place,
                      {.operation = "inspect",
                       .advice = there ? "Train it first, or to its first checkpoint."
                                       : "Name a run's folder, a Checkpointer's, one of its "
                                         "step-... folders or a .safetensors file."});
  }
  return weights_of(CheckpointFolder(storage::local_file_system(), found->directory), found->step);
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
