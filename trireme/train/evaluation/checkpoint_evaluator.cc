#include "trireme/train/evaluation/checkpoint_evaluator.h"

#include <algorithm>
#include <cstdio>

#include "trireme/base/words.h"

namespace trireme::inline v0::train {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);

}  // namespace

CheckpointEvaluator::CheckpointEvaluator(const RunFolder& run, EvaluatorOptions options,
                                         const std::shared_ptr<storage::FileSystem>& storage)
    : folder_(run),
      options_(std::move(options)),
      storage_(storage),
      checkpoints_(run.checkpoints()),
      own_(storage, run.evaluating()) {}

CheckpointEvaluator::~CheckpointEvaluator() {
  if (!record_) return;
  try {
    record_->check_claim();
    storage_->remove(folder_.evaluating());
  } catch (...) {  // the next evaluator removes it
  }
}

void CheckpointEvaluator::run() {
  while (!options_.stopped()) {
    try {
      const bool more = take_turn();
      end_outage();
      if (!more) return conclude();
    } catch (const ResourceError& error) {
      wait_for_storage(error);
    }
  }
}

// False when nothing is left to do. After an error of the storage the next turn does the rest.
bool CheckpointEvaluator::take_turn() {
  const auto& waiter = options_.waiter;
  const bool ended = options_.ended();  // before looking, so that the last checkpoint is seen
  if (ended && !deadline_) deadline_ = waiter->now() + options_.patience;
  if (!record_) open_record();
  record_->keep_best_alone();
  look();
  if (deadline_) miss_all_but_newest();
  if (waiting_.empty() && ended) return false;
  if (waiting_.empty())
    waiter->wait_until(options_.woken, waiter->now() + options_.look);
  else
    evaluate(*waiting_.begin());
  return true;
}

// The record locks the run for this evaluator.
void CheckpointEvaluator::open_record() {
  record_.emplace(folder_, storage_);
  record_->echo_to_stdout(options_.json);
}

// Called in the handler of `error`. Rethrows it when the patience is over.
void CheckpointEvaluator::wait_for_storage(const ResourceError& error) {
  const TimePoint now = options_.waiter->now();
  if (!failing_since_) {
    failing_since_ = now;
    pause_ = kFirstPause;
    if (options_.storage_patience > Duration::zero())
      options_.say("the evaluator waits: " + error.message() +
                   ". It tries again, and ends if that lasts for " +
                   duration_text(to_seconds(options_.storage_patience)) + " (checkpoint.patience)");
  }
  const TimePoint end = *failing_since_ + options_.storage_patience;
  if (now >= end) throw;
  options_.waiter->wait_until(options_.stopped, std::min(now + pause_, end));
  pause_ = std::min(2 * pause_, kLongestPause);
}

void CheckpointEvaluator::end_outage() {
  if (!failing_since_) return;
  options_.say("the evaluator goes on; the storage had failed for " +
               duration_text(to_seconds(options_.waiter->now() - *failing_since_)));
  failing_since_.reset();
}

void CheckpointEvaluator::look() {
  std::set<std::int64_t> there;
  for (const std::int64_t step : checkpoints_.steps())
    if (!record_->has(step)) there.insert(step);
  for (const std::int64_t step : waiting_)
    if (!there.contains(step) && !record_->has(step))
      miss(step, "checkpoint.keep removed it before its turn");
  waiting_ = std::move(there);
}

void CheckpointEvaluator::miss_all_but_newest() {
  const Duration left = *deadline_ - options_.waiter->now();
  if (last_ * static_cast<std::int64_t>(waiting_.size()) <= left) return;
  while (waiting_.size() > 1) {
    miss(*waiting_.begin(),
         "the training has ended, and there is only time to evaluate the newest checkpoint");
    waiting_.erase(waiting_.begin());
  }
}

void CheckpointEvaluator::miss(std::int64_t step, const std::string& reason) {
  record_->give_up(step, "missed", reason);
  options_.say("step " + grouped(step) + " is not evaluated: " + reason);
}

void CheckpointEvaluator::evaluate(std::int64_t step) {
  record_->check_claim();
  storage_->remove(folder_.evaluating());  // of a process that was killed, or a turn that failed
  const TimePoint began = options_.waiter->now();
  try {
    if (!own_.adopt(checkpoints_, step)) return;  // it is gone, and look() says so
    EvaluatedCheckpoint found = options_.evaluate(folder_.evaluating(), step);
    last_ = options_.waiter->now() - began;
    const double seconds = to_seconds(last_);
    found.event.set("seconds", seconds);
    const bool best = record_->add(step, found.loss, std::move(found.event), own_);
    options_.say("evaluation after step " + grouped(step) + ": loss " + with_unit(found.loss) +
                 (best ? ", the best so far" : "") + " (" + duration_text(seconds) + ")");
  } catch (const CheckpointError& error) {
    record_->give_up(step, "refused", error.message());
    options_.say("step " + grouped(step) + " is not evaluated: " + error.message());
  }
  waiting_.erase(step);
  storage_->remove(folder_.evaluating());
}

std::string CheckpointEvaluator::with_unit(double loss) const {
  return formatted("%.4f", loss) + (options_.unit.empty() ? "" : " " + options_.unit);
}

void CheckpointEvaluator::conclude() const {
  if (record_->count() == 0) options_.say("no checkpoint of " + folder_.path() + " was evaluated");
  if (!record_->best()) return;
  options_.say("the best of " + counted(record_->count(), "evaluated checkpoint") + ": step " +
               grouped(record_->best()->step) + ", loss " + with_unit(record_->best()->loss) +
               "; it is in " + folder_.best());
}

}  // namespace trireme::inline v0::train
