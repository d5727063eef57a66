#include "trireme/train/evaluation/evaluation_record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::inline v0::train {
namespace {

constexpr const char* kEvaluation = "validation";

}  // namespace

void EvaluationRecord::check(const RunFolder& run) {
  const RunFolder best(run.best());
  if (!std::ifstream(best.events())) return;
  throw ConfigError(best.path() + " was continued as a run of its own",
                    {.operation = "evaluator",
                     .advice = "Move it to another place: the evaluator writes there."});
}

EvaluationRecord::EvaluationRecord(const RunFolder& run,
                                   std::shared_ptr<storage::FileSystem> storage)
    : storage_(std::move(storage)),
      best_folder_(run.best(), storage_),
      best_checkpoints_(storage_, best_folder_.own_checkpoint()) {
  check(run);
  storage_->make_directory(best_folder_.path());
  lock_ = storage_->lock(best_folder_.path());
  if (lock_) claim_ = storage::Claim::of({storage::folder_storage(storage_), best_folder_.path()});
  best_checkpoints_.guard(claim_);
  best_folder_.copy_config(run);  // a resumed run may have changed it
  observe::keep_until(run.evaluations(), static_cast<long>(run.newest_step()));
  read(run.evaluations());
  choose_best(run.checkpoints());
  events_.open(run.evaluations());
}

void EvaluationRecord::read(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("step") || !event["step"].is_number_integer())
      continue;
    std::optional<double>& loss = losses_[event["step"].get<std::int64_t>()];
    if (event.value("event", nlohmann::json()) == kEvaluation && event.contains("loss") &&
        event["loss"].is_number())
      loss = event["loss"].get<double>();
  }
}

// Chooses the checkpoint with the least loss among those that still exist.
void EvaluationRecord::choose_best(const storage::CheckpointFolder& run) {
  std::vector<Best> found;
  for (const auto& [step, loss] : losses_)
    if (loss) found.push_back({step, *loss});
  std::stable_sort(found.begin(), found.end(),
                   [](const Best& a, const Best& b) { return a.loss < b.loss; });
  const auto best = std::find_if(found.begin(), found.end(), [&](const Best& one) {
    try {
      return best_checkpoints_.adopt(run, one.step);  // it may be there already
    } catch (const CheckpointError&) {                // damaged since
      return false;
    }
  });
  if (best != found.end()) best_ = *best;
  keep_best_alone();
}

void EvaluationRecord::keep_best_alone() {
  if (best_is_alone_) return;
  for (const std::int64_t step : best_checkpoints_.steps())
    if (!best_ || step != best_->step) best_checkpoints_.remove(step);
  best_is_alone_ = true;
}

int EvaluationRecord::count() const {
  return static_cast<int>(std::count_if(losses_.begin(), losses_.end(),
                                        [](const auto& one) { return one.second.has_value(); }));
}

bool EvaluationRecord::add(std::int64_t step, double loss, observe::Event event,
                           const storage::CheckpointFolder& holder) {
  check_claim();
  const bool better = std::isfinite(loss) && (!best_ || loss < best_->loss) &&
                      best_checkpoints_.adopt(holder, step);
  events_.write(event.set("best", better).set("time", observe::wall_seconds()));
  losses_[step] = std::isfinite(loss) ? std::optional(loss) : std::nullopt;
  if (!better) return false;
  best_ = {step, loss};
  best_is_alone_ = false;
  return true;
}

void EvaluationRecord::give_up(std::int64_t step, const std::string& kind,
                               const std::string& reason) {
  check_claim();
  events_.write(observe::Event(kind)
                    .set("step", static_cast<long>(step))
                    .set("reason", reason)
                    .set("time", observe::wall_seconds()));
  losses_[step] = std::nullopt;
}

}  // namespace trireme::inline v0::train
