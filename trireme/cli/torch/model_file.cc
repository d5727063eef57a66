#include "trireme/cli/torch/model_file.h"

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/cli/checkpoints.h"
#include "trireme/train/run_folder.h"

namespace trireme::inline v0::cli {

namespace {

using checkpoint::CheckpointFolder;

format::MappedFile verified(const CheckpointFolder& folder, std::int64_t step) {
  folder.verify(step);
  return folder.map(step, checkpoint::kModelFile);
}

// The newest checkpoint below an address, or the one that its last part names.
format::MappedFile model_elsewhere(const std::string& place) {
  const auto slash = place.find_last_of('/', place.find_last_not_of('/'));
  if (const auto step = checkpoint::step_of_folder(place.substr(slash + 1)))
    return verified(CheckpointFolder(checkpoint::open_location(place.substr(0, slash))), *step);
  const CheckpointFolder folder(checkpoint::open_location(place));
  const std::vector<std::int64_t> steps = folder.steps();
  if (steps.empty())
    throw ConfigError(place + " holds no checkpoint",
                      {.operation = "inspect",
                       .advice = "Give the checkpoint.path of a run, or one of its step-... "
                                 "folders."});
  return verified(folder, steps.back());
}

}  // namespace

format::MappedFile model_file(const std::string& place) {
  if (checkpoint::has_scheme(place)) return model_elsewhere(place);
  std::error_code missing;
  if (std::filesystem::is_regular_file(place, missing)) return format::MappedFile(place);
  const train::RunFolder run(place);
  if (const std::string elsewhere = run.checkpoint(); elsewhere != run.own_checkpoint())
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
  return verified(CheckpointFolder(checkpoint::local_file_system(), found->directory), found->step);
}

}  // namespace trireme::inline v0::cli
