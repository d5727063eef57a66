#include "trireme/cli/files.h"

#include <fstream>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::inline v0::cli {

std::string read_file(const std::string& path, const std::string& operation,
                      const std::string& advice) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf()) || !file) {
    throw ConfigError("cannot read " + path, {.operation = operation, .advice = advice});
  }
  return text.str();
}

void write_file(const std::string& path, const std::string& text, const std::string& operation) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) {
    throw ResourceError(
        "cannot write " + path,
        {.operation = operation, .advice = "Does its folder exist, is there room?"});
  }
}

}  // namespace trireme::inline v0::cli
