#include "trireme/base/check.h"

namespace trireme::inline v0::detail {

void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  throw CheckFailure("check failed at " + std::string(file) + ":" + std::to_string(line) + ": " +
                     expression + ", where it read " + values);
}

}  // namespace trireme::inline v0::detail
