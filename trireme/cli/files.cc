#include "trireme/cli/files.h"

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme::inline v0::cli {

void write_file(const std::string& path, const std::string& text, const std::string& operation) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) {
    throw ResourceError(
        "cannot write " + path,
        {.operation = operation, .advice = "Does its folder exist, is there room?"});
  }
}

bool can_write(const std::string& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) return false;
  if (!existed) std::filesystem::remove(path, ignored);
  return true;
}

}  // namespace trireme::inline v0::cli
