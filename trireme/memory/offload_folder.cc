#include "trireme/memory/offload_folder.h"

#include <unistd.h>

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::inline v0::memory {

void check_offload_folder(const std::string& key, const std::string& folder) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(key + " = \"" + folder + "\": " + what,
                      {.operation = "config", .label = key, .advice = advice});
  };
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure))
    refuse("there is no such folder", "Make it, or name another one on a local disk.");
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse("files cannot be made in it", "Name a folder that you may write to.");
}

}  // namespace trireme::inline v0::memory
