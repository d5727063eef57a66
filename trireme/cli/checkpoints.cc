#include "trireme/cli/checkpoints.h"

#include <charconv>
#include <filesystem>
#include <string_view>

namespace trireme::inline v0::cli {
namespace {

namespace fs = std::filesystem;

// The step number of "step-00000500" if it has a manifest, which is written last.
std::optional<std::int64_t> step_of(const fs::path& path) {
  constexpr std::string_view kPrefix = "step-";
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  std::error_code missing;
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  if (!fs::is_regular_file(path / "manifest.json", missing)) return std::nullopt;
  return step;
}

std::optional<FoundCheckpoint> newest_in(const fs::path& directory) {
  std::optional<FoundCheckpoint> newest;
  std::error_code missing;
  for (fs::directory_iterator next(directory, missing), end; !missing && next != end;
       next.increment(missing)) {
    const auto step = step_of(next->path());
    if (step && (!newest || *step > newest->step))
      newest = {.directory = directory.string(), .path = next->path().string(), .step = *step};
  }
  return newest;
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const std::string& place) {
  std::error_code missing;
  fs::path path = fs::absolute(place, missing).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (const auto step = step_of(path))
    return FoundCheckpoint{.directory = path.parent_path().string(),
                           .path = path.string(),
                           .step = *step,
                           .named = true};
  if (auto below = newest_in(fs::path(place) / "checkpoint")) return below;
  return newest_in(place);
}

}  // namespace trireme::inline v0::cli
