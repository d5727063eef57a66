#include "trireme/checkpoint/checkpointer_options.h"

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::checkpoint {
namespace {

constexpr const char* kPatience = "TRIREME_CHECKPOINT_PATIENCE";

}  // namespace

Duration patience_of(Duration given) {
  const char* text = std::getenv(kPatience);
  if (text == nullptr || *text == '\0' || given != CheckpointerOptions().patience) return given;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds >= 0) || seconds > 1e9)
    throw ConfigError(
        std::string(kPatience) + "=" + text + " is not a number of seconds",
        {.operation = "config", .advice = "For example: TRIREME_CHECKPOINT_PATIENCE=600"});
  return from_seconds(seconds);
}

storage::Location location_of(const std::string& directory, const CheckpointerOptions& options) {
  return options.storage ? storage::Location{options.storage, directory}
                         : storage::open_location(directory);
}

void check(const CheckpointerOptions& options) {
  if (options.keep < 1 || options.every < 0 || !(options.keep_hours >= 0) ||
      options.keep_best < 0) {
    throw ConfigError(
        "checkpoint.keep = " + std::to_string(options.keep) +
            ", checkpoint.keep_hours = " + std::to_string(options.keep_hours) +
            ", checkpoint.keep_best = " + std::to_string(options.keep_best) +
            " and checkpoint.every = " + std::to_string(options.every),
        {.operation = "checkpoint", .advice = "Keep at least 1; every 0 saves only when asked."});
  }
  if (options.memory < 0 || options.memory_every < 1 || options.patience < Duration::zero() ||
      to_seconds(options.patience) > 1e9)
    throw ConfigError("checkpoint.memory = " + std::to_string(options.memory) +
                          ", checkpoint.memory_every = " + std::to_string(options.memory_every) +
                          " and a patience of " + duration_text(to_seconds(options.patience)),
                      {.operation = "checkpoint",
                       .advice = "Use 0 copies in memory for none, made every 1 step or more, and "
                                 "a patience of 0 to 10^9 s."});
  if (!is_utf8(options.identity)) {
    throw ConfigError("the checkpoints' identity is no UTF-8, and manifest.json holds nothing else",
                      {.operation = "checkpoint", .advice = "Write other bytes as numbers."});
  }
}

}  // namespace trireme::inline v0::checkpoint
