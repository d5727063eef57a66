#include "trireme/cli/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"

namespace trireme::inline v0::cli {

void write_file(const std::string& path, const std::string& text, const std::string& operation) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) {
    throw ResourceError(
        "cannot write " + path + ": " + std::strerror(errno),
        {.operation = operation, .advice = "Give a file in a folder that exists and has room."});
  }
}

bool can_write(const std::string& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) return false;
  // A link whose target was missing stays, and its target goes again.
  if (!existed) std::filesystem::remove(std::filesystem::canonical(path, ignored), ignored);
  return true;
}

void check_can_write(const std::string& path, const std::string& operation) {
  if (!can_write(path)) refuse(operation, "cannot write " + path, "Name another file.");
}

}  // namespace trireme::inline v0::cli
