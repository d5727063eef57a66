#include "trireme/cli/model_file.h"

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/train/run_folder.h"

namespace trireme {
inline namespace v0 {
namespace cli {

std::string model_file(const std::string& place) {
  if (std::filesystem::is_regular_file(place)) return place;
  const train::RunFolder run = train::RunFolder::existing(place);
  const checkpoint::CheckpointFolder checkpoints(checkpoint::local_storage(), run.checkpoint());
  const std::vector<std::int64_t> steps = checkpoints.steps();
  if (steps.empty()) {
    throw ConfigError(
        run.path() + " holds no checkpoint",
        {.operation = "inspect", .advice = "Train it first, or to its first checkpoint."});
  }
  checkpoints.verify(steps.back());
  return checkpoints.path_of(steps.back()) + "/" + checkpoint::kModelFile;
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
