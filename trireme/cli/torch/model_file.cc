#include "trireme/cli/torch/model_file.h"

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/cli/checkpoints.h"

namespace trireme::inline v0::cli {

std::string model_file(const std::string& place) {
  std::error_code missing;
  if (std::filesystem::is_regular_file(place, missing)) return place;
  const auto found = find_checkpoint(place);
  if (!found) {
    const bool there = std::filesystem::exists(place, missing);
    throw ConfigError(there ? place + " holds no checkpoint" : "there is no " + place,
                      {.operation = "inspect",
                       .advice = there ? "Train it first, or to its first checkpoint."
                                       : "Name a run's folder, a Checkpointer's, one of its "
                                         "step-... folders or a .safetensors file."});
  }
  checkpoint::CheckpointFolder(checkpoint::local_storage(), found->directory).verify(found->step);
  return found->model();
}

}  // namespace trireme::inline v0::cli
