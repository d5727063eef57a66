#include "trireme/checkpoint/checkpointer_options.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "trireme/base/differing_lines.h"
#include "trireme/base/error.h"
#include "trireme/base/utf8.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace checkpoint {
namespace {

constexpr const char* kPatience = "TRIREME_CHECKPOINT_PATIENCE";

// `text` without the lines "KEY = ..." of these keys.
std::string without(const std::string& text, const std::vector<std::string>& keys) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto named = [&](const std::string& key) { return line.starts_with(key + " = "); };
    if (std::none_of(keys.begin(), keys.end(), named)) kept += line + "\n";
  }
  return kept;
}

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

void compare_identity(const std::string& saved, const CheckpointerOptions& options,
                      const std::string& path) {
  if (saved.empty() || options.identity.empty()) return;
  const std::string theirs = without(saved, options.changed),
                    ours = without(options.identity, options.changed);
  if (theirs == ours) return;
  throw CheckpointError(path + " is of another job: it has " + differing_lines(theirs, ours) +
                            ", and this one has " + differing_lines(ours, theirs),
                        {.operation = "resume",
                         .advice = "Resume with the same model, data, seed and batch, or choose "
                                   "another folder."});
}

}  // namespace checkpoint

namespace {

CheckpointerOptions checkpointer_options(const BackupOptions& options) {
  if (options.every < 1)
    throw ConfigError("a backup every " + std::to_string(options.every) + " steps",
                      {.operation = "backup", .advice = "Set BackupOptions::every to 1 or more."});
  return {.every = options.every,
          .keep = 1,
          .identity = options.identity,
          .memory = options.memory,
          .memory_every = options.memory_every,
          .storage = options.storage};
}

}  // namespace

BackupAndRestore::BackupAndRestore(Job& job, const std::string& place, const BackupOptions& options)
    : checkpointer_(job, place, checkpointer_options(options)) {}

}  // namespace trireme::inline v0
