#include <fstream>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/plan/schedule_check.h"
#include "trireme/plan/schedules/schedules.h"

namespace trireme {
inline namespace v0 {
namespace plan {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "schedule", .advice = advice});
}

Schedule read(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    refuse("the schedule " + path + " cannot be read",
           "Name a file, or a schedule that `trireme show schedule` lists.");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_schedule(text.str(), path);
}

Schedule generated(const std::string& name, int ranks, int chunks, int microbatches) {
  if (chunks == 0) chunks = schedule_named(name).chunks == Chunks::One ? 1 : 2;
  return make_schedule(
      name, {.ranks = ranks, .stages = ranks * chunks, .microbatches = std::max(microbatches, 1)});
}

}  // namespace

Schedule load_schedule(const std::string& name, int ranks, int chunks, int microbatches) {
  const bool is_file = name.find_first_of("./") != std::string::npos;
  Schedule schedule = is_file ? read(name) : generated(name, ranks, chunks, microbatches);
  verify(schedule, name);
  if (schedule.ranks() != ranks)
    refuse(name + " is for " + std::to_string(schedule.ranks()) + " ranks, and the pipeline has " +
               std::to_string(ranks),
           "Set parallel.pipeline to the schedule's number of ranks.");
  if (microbatches > 0 && schedule.microbatches() != microbatches)
    refuse(name + " has " + std::to_string(schedule.microbatches()) +
               " micro-batches, and a step of the pipeline has " + std::to_string(microbatches),
           "Write the schedule for that many, or change batch.global or batch.micro.");
  return schedule;
}

}  // namespace plan
}  // namespace v0
}  // namespace trireme
