#include "trireme/command/write_file.h"

#include <fstream>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace command {

void write_file(const std::string& path, const std::string& text, const std::string& operation) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) {
    throw ResourceError(
        "cannot write " + path,
        {.operation = operation, .advice = "Does its folder exist, is there room?"});
  }
}

}  // namespace command
}  // namespace v0
}  // namespace trireme
