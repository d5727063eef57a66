#include "trireme/cli/files.h"

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

}  // namespace trireme::inline v0::cli
