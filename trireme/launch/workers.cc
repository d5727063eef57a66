#include "trireme/launch/workers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trireme/base/words.h"
#include "trireme/launch/output.h"

namespace trireme::inline v0::launch {

Workers::Workers(const JobContext& job, Processes& processes, ProcessStarter& starter,
                 const JobStop& stop, std::function<void()> on_finished)
    : job_(job),
      processes_(processes),
      starter_(starter),
      stop_(stop),
      on_finished_(std::move(on_finished)),
      count_(job.options.ranks),
      wanted_(job.options.ranks) {}

void Workers::finish() {
  finished_ = true;
  on_finished_();
}

void Workers::note_end(int ranks) {
  if (++ended_ == ranks) finish();
}

bool Workers::can_do_without(int worker) const {
  if (worker == 0) return false;
  const int left = count_ - ended_ - 1;
  const int waited_for = std::min(job_.coordinator->workers_needed(), job_.options.ranks - ended_);
  return left >= std::max(waited_for, job_.options.range ? job_.options.range->min : 1);
}

void Workers::do_without(int process) {
  if (job_.roles.role_of(process) != Role::Worker) return;
  wanted_ = --count_;
  if (ended_ == count_) finish();
}

// Servers are needed until the last worker has ended.
void Workers::end_with_rank0() {
  for (int process = 1; process < processes_.count(); ++process) {
    Processes::One& one = processes_[process];
    if (job_.roles.role_of(process) != Role::Worker) continue;
    if (std::exchange(one.due, false)) do_without(process);
    if (!one.runs() || one.leaves) continue;
    one.ends = true;
    processes_.ask_to_end(process);
  }
}

void Workers::want(int wanted) {
  const auto [min, max] = *job_.options.range;
  if (wanted < min || wanted > max)
    return say("cannot go on with " + counted(wanted, "rank") + ": elastic allows " +
               std::to_string(min) + " to " + std::to_string(max) + "; the job keeps " +
               counted(count_ - ended_, "rank") + ".");
  wanted_ = wanted;
}

void Workers::resize() {
  if (stop_.first_signal() != 0 || stop_.out_of_time() || ended_ > 0 || starter_.starting()) return;
  if (count_ < wanted_) add();
  if (count_ > wanted_) dismiss();
}

bool Workers::in_job(int worker) const {
  const Processes::One& one = processes_[job_.roles.process_of(Role::Worker, worker)];
  return one.runs() && !one.leaves;
}

// A place is not free while its last worker is still leaving.
void Workers::add() {
  for (int worker = 0; worker < job_.options.range->max; ++worker) {
    const int process = job_.roles.process_of(Role::Worker, worker);
    if (processes_[process].runs() || processes_[process].due) continue;
    ++count_;
    say(job_.roles.name_of(process) + " joins, as asked: " + counted(count_, "rank") + ".");
    return starter_.start_again(process);
  }
}

// Rank 0, which validates and saves, stays.
void Workers::dismiss() {
  int worker = job_.options.range->max - 1;
  while (worker > 0 && !in_job(worker)) --worker;
  if (worker == 0) return;
  const int process = job_.roles.process_of(Role::Worker, worker);
  if (!job_.coordinator->trains_alone(process)) return;  // it has just been started
  processes_[process].leaves = true;
  --count_;
  processes_.ask_to_end(process);
}

void Workers::note_dismissed(int process) {
  job_.coordinator->lose_worker(process);
  if (!finished_ && !stop_.failed())
    say(job_.roles.name_of(process) + " has left, as asked: " + counted(count_, "rank") + ".");
}

}  // namespace trireme::inline v0::launch
