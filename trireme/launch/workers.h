// Workers: counts a job's workers, and notices when all have ended. If they train on their own
// (WorkerRange), it also adds and dismisses workers until there are as many as the user wants.
//
// The Supervisor owns it; `on_finished` is called when all workers have ended. ElasticRanks changes
// the ranks of an elastic job; their ends are counted here. Used in the progress context.
#pragma once

#include <functional>

#include "trireme/launch/job_stop.h"
#include "trireme/launch/process_starter.h"

namespace trireme::inline v0::launch {

class Workers {
 public:
  Workers(const JobContext& job, Processes& processes, ProcessStarter& starter, const JobStop& stop,
          std::function<void()> on_finished);

  /// The job's workers, those that have ended included.
  int count() const noexcept { return count_; }
  int ended() const noexcept { return ended_; }
  /// All workers have ended.
  bool finished() const noexcept { return finished_; }
  /// A worker has ended its training; the job has `ranks` of them.
  void note_end(int ranks);

  /// False for rank 0, which validates and saves, for the last workers of the range, and for those
  /// that servers wait for.
  bool can_do_without(int worker) const;
  /// The process is gone for good: if it is a worker, the job has one less.
  void do_without(int process);
  /// Rank 0 has ended: asks workers that train on their own to end.
  void end_with_rank0();

  /// The user wants this many.
  void want(int wanted);
  /// Adds or dismisses one worker towards the wanted number. Not once one has ended its training.
  void resize();
  /// A worker that was dismissed has ended, in whatever way.
  void note_dismissed(int process);

 private:
  void finish();
  void add();
  void dismiss();
  bool in_job(int worker) const;

  const JobContext& job_;
  Processes& processes_;
  ProcessStarter& starter_;
  const JobStop& stop_;
  const std::function<void()> on_finished_;
  int count_;
  int wanted_;
  int ended_ = 0;
  bool finished_ = false;
};

}  // namespace trireme::inline v0::launch
