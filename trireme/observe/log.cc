#include "trireme/observe/log.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace trireme::inline v0::observe {
namespace {

Level least_level() {
  const char* const name = std::getenv("TRIREME_LOG");
  const std::string_view text = name == nullptr ? "" : name;
  return text == "debug"     ? Level::Debug
         : text == "warning" ? Level::Warning
         : text == "error"   ? Level::Error
                             : Level::Info;
}

}  // namespace

void log(Level level, std::string_view text) {
  static const Level least = least_level();
  if (level < least) return;
  std::string line = level == Level::Warning ? "warning: " : level == Level::Error ? "error: " : "";
  line.append(text).append("\n");
  std::fwrite(line.data(), 1, line.size(), stderr);  // unbuffered: one write
}

}  // namespace trireme::inline v0::observe
