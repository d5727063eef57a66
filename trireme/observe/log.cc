#include "trireme/observe/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace trireme::inline v0::observe {
namespace {

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::Debug:
      return spdlog::level::debug;
    case Level::Info:
      return spdlog::level::info;
    case Level::Warning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

// from_str() takes an unknown name for "off", which would hide errors, as "critical" would.
spdlog::level::level_enum level_named(const char* name) {
  if (name == nullptr) return spdlog::level::info;
  const auto level = spdlog::level::from_str(name);
  return level > spdlog::level::err ? spdlog::level::info : level;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("trireme",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::debug);
    made->set_level(level_named(std::getenv("TRIREME_LOG")));
    return made;
  }();
  return *instance;
}

}  // namespace

void log(Level level, std::string_view text) {
  const char* prefix = level == Level::Warning ? "warning: "
                       : level == Level::Error ? "error: "
                                               : "";
  logger().log(level_of(level), "{}{}", prefix, text);
}

}  // namespace trireme::inline v0::observe
