#include "trireme/cli/checkpoints.h"

#include <filesystem>

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

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const std::string& place) {
  const std::string name = plain_name(place);
  const bool address = storage::has_scheme(place);
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

}  // namespace trireme::inline v0::cli
