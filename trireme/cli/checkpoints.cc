#include "trireme/cli/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "trireme/base/refuse.h"
#include "trireme/format/safetensors.h"
#include "trireme/storage/saved_tensors.h"

namespace trireme::inline v0::cli {
namespace {

namespace fs = std::filesystem;

std::optional<FoundCheckpoint> newest_in(const std::string& place) {
  storage::CheckpointFolder folder(storage::open_location(place));
  const std::vector<std::int64_t> steps = folder.steps();
  if (steps.empty()) return std::nullopt;
  return FoundCheckpoint{.folder = std::move(folder), .step = steps.back()};
}

// Without slashes at its end; a path of this machine from the root.
std::string plain_name(const std::string& place) {
  std::error_code missing;
  std::string name =
      storage::has_scheme(place) ? place : fs::absolute(place, missing).lexically_normal().string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
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

[[noreturn]] void refuse_place(const std::string& place) {
  std::error_code missing;
  const bool there = storage::has_scheme(place) || fs::exists(place, missing);
  refuse("checkpoint", there ? place + " holds no checkpoint" : "there is no " + place,
         there ? "Train it until it has written its first checkpoint (checkpoint.every), or name "
                 "the place in checkpoint.path."
               : "Name a run's folder, a Checkpointer's, one of its step-... folders or a "
                 ".safetensors file.");
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const std::string& place) {
  if (place.empty())
    refuse("checkpoint", "the name of a run is empty", "Name a run's folder, or a checkpoint's.");
  const bool address = storage::has_scheme(place);
  if (address) {
    const storage::Location location = storage::open_location(place);
    if (!location.storage->is_remote()) return find_checkpoint(location.path);  // file://
  }
  const std::string name = plain_name(place);
  std::error_code missing;
  const auto slash = name.rfind('/');
  if (const auto step = storage::step_of_folder(name.substr(slash + 1));
      step && (address || fs::is_directory(name, missing)))
    return FoundCheckpoint{.folder = storage::CheckpointFolder(
                               storage::open_location(slash == 0 ? "/" : name.substr(0, slash))),
                           .step = *step,
                           .named = true};
  if (address) return newest_in(name);
  if (const std::string elsewhere = storage::checkpoint_path_of(name); !elsewhere.empty())
    return newest_in(elsewhere);
  if (auto below = newest_in(name + "/checkpoint")) return below;
  return newest_in(name);
}

ModelWeights model_weights(const std::string& place) {
  std::error_code missing;
  if (!storage::has_scheme(place) && fs::is_regular_file(place, missing)) return weights_in(place);
  const auto found = find_checkpoint(place);
  if (!found) refuse_place(place);
  return model_weights(*found);
}

ModelWeights model_weights(const FoundCheckpoint& found) {
  const storage::CheckpointReader& folder = found.folder;
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
