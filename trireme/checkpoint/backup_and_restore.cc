#include "trireme/checkpoint/checkpointer.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/job/job.h"

namespace trireme::inline v0 {
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

BackupAndRestore& BackupAndRestore::add(std::string name, Saveable& part) {
  checkpointer_.add(std::move(name), part);
  return *this;
}

long BackupAndRestore::restore() { return checkpointer_.resume(); }

void BackupAndRestore::after(long step) { checkpointer_.after(step); }

void BackupAndRestore::done() { checkpointer_.remove_all(); }

}  // namespace trireme::inline v0
