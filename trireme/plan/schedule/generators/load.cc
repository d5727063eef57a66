#include <utility>

#include "trireme/base/file.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {
namespace {

// In the order of a file, micro-batches may overtake one another. Links between stages distinguish
// this many (pipeline/stage_link.cc).
constexpr int kMostMicroBatchesOfFile = 2048;

Schedule read(const std::string& path) {
  const std::string text =
      read_file(path, "the schedule ",
                {.operation = "schedule",
                 .advice = "Name a file, or a schedule that `trireme show schedule` lists."});
  return parse_schedule(text, path);
}

bool is_file(const std::string& name) { return name.find_first_of("./") != std::string::npos; }

// Micro-batches do not wait for one another, so the remaining ones can run in the same order.
Schedule shortened(Schedule schedule, int microbatches) {
  for (auto& actions : schedule.order) {
    std::vector<Action> kept;
    for (const Action& action : actions) {
      std::vector<Action> here;
      each_pass(action, [&](const Action& pass) {
        if (pass.microbatch < microbatches) here.push_back(pass);
      });
      if (here.size() == 2) here = {action};
      kept.insert(kept.end(), here.begin(), here.end());
    }
    actions = std::move(kept);
  }
  return schedule;
}

Schedule generated(const std::string& name, int ranks, int chunks, int microbatches) {
  if (chunks == 0) chunks = schedule_named(name).chunks == Chunks::One ? 1 : 2;
  return make_schedule(
      name, {.ranks = ranks, .stages = ranks * chunks, .microbatches = std::max(microbatches, 1)});
}

}  // namespace

std::string why_not_trained(const Schedule& schedule) {
  for (const auto& actions : schedule.order)
    for (const Action& action : actions)
      if (!is_pass(action.kind) && !is_transfer(action.kind))
        return "a training does not run " + text_of(action);
  if (schedule.microbatches() > kMostMicroBatchesOfFile)
    return "a training runs at most " + std::to_string(kMostMicroBatchesOfFile) +
           " micro-batches of a file, not " + std::to_string(schedule.microbatches());
  return {};
}

Schedule load_schedule(const std::string& name, int ranks, int chunks, int microbatches,
                       std::vector<RankPeak>* peaks) {
  Schedule schedule = is_file(name) ? read(name) : generated(name, ranks, chunks, microbatches);
  std::vector<RankPeak> verified = verify(schedule, name);
  if (peaks != nullptr) *peaks = std::move(verified);
  if (const std::string why = is_file(name) ? why_not_trained(schedule) : ""; !why.empty())
    refuse("schedule", name + ": " + why,
           "Write F, B, I and W alone; memory.recompute, memory.offload and parallel.sync say what "
           "is in memory when.");
  if (schedule.ranks() != ranks)
    refuse("schedule",
           name + " is for " + std::to_string(schedule.ranks()) + " ranks, and the pipeline has " +
               std::to_string(ranks),
           "Set parallel.pipeline to the schedule's number of ranks.");
  if (chunks > 0 && schedule.stages() != std::int64_t{ranks} * chunks)
    refuse("schedule",
           name + " is for " + counted(schedule.stages(), "stage") +
               ", and parallel.chunks = " + std::to_string(chunks) + " on " +
               counted(ranks, "rank") + " means " + counted(std::int64_t{ranks} * chunks, "stage"),
           "Leave parallel.chunks out: the file says which stages a rank holds.");
  if (microbatches > 0 && schedule.microbatches() != microbatches)
    refuse("schedule",
           name + " has " + std::to_string(schedule.microbatches()) +
               " micro-batches, and a step of the pipeline has " + std::to_string(microbatches),
           "Write the schedule for that many, or change batch.global or batch.micro.");
  return schedule;
}

Schedule load_schedule_of_step(const std::string& name, int ranks, int chunks, int microbatches) {
  if (!is_file(name)) return load_schedule(name, ranks, chunks, microbatches);
  Schedule schedule = load_schedule(name, ranks, chunks, 0);
  if (schedule.microbatches() < microbatches)
    return load_schedule(name, ranks, chunks, microbatches);  // throws
  return shortened(std::move(schedule), microbatches);
}

}  // namespace trireme::inline v0::plan
