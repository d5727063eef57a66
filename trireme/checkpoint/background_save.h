// BackgroundSave: writes one checkpoint, on its own thread beside the training or on the caller's.
//
// On the other ranks the thread writes this rank's files, or sends its shards to rank 0
// (CheckpointContent). Rank 0 decides for all: if the storage is full or away for one rank
// (ResourceError), all try again after growing pauses, and keep their copies until then. The tries
// end with success, with give_up(), or when the job's storage has failed for `patience`.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "trireme/base/waiter.h"
#include "trireme/checkpoint/reach.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::inline v0::checkpoint {

/// Since when a job's storage has failed. One save at a time uses it.
class Outage {
 public:
  explicit Outage(Duration patience) : patience_(patience) {}
  /// A try has failed: warns the first time and then every minute. False if the patience is over.
  bool go_on(TimePoint now, std::int64_t step, const std::string& reason);
  /// A save has succeeded: says so if it had failed before.
  void end(TimePoint now, std::int64_t step);
  Duration patience() const noexcept { return patience_; }

 private:
  const Duration patience_;
  std::optional<TimePoint> since_;
  TimePoint warned_{};
};

/// Calls `ask` again while it throws ResourceError, for at most `patience`. False, without success,
/// as soon as `ended` returns true after a failure.
bool ask_patiently(const std::function<void()>& ask, Duration patience, Waiter& waiter,
                   const std::function<bool()>& ended);

class BackgroundSave {
 public:
  /// `content` must have a snapshot and a group if start() is called.
  BackgroundSave(std::unique_ptr<CheckpointContent> content, storage::Manifest manifest,
                 storage::CheckpointFolder folder, storage::Retention keep, int rank,
                 Outage& outage, Reach& reach, std::shared_ptr<Waiter> waiter);
  /// Waits for the thread.
  ~BackgroundSave();

  /// Throws std::system_error if the system refuses a thread; then nothing was started.
  void start();
  /// On this thread, with one try: a failure within the patience is only a warning.
  void run_here();

  /// Rank 0: whether a try has failed and the thread waits for the next one.
  bool is_pausing() const noexcept { return pausing_; }
  /// Rank 0: whether a try has failed so far.
  bool has_failed() const noexcept { return failed_; }
  /// The present try is the last one. Any thread.
  void give_up() noexcept;
  bool ended() const noexcept { return ended_; }
  /// After ended(): whether the checkpoint is complete (rank 0), and the error that ends the job.
  bool succeeded() const noexcept { return succeeded_; }
  /// Rank 0, after a success: what was written.
  const storage::SaveReport& report() const noexcept { return report_; }
  std::int64_t step() const noexcept { return manifest_.step; }
  std::exception_ptr error() const noexcept { return error_; }
  /// After ended(): why the last try failed; null if none did.
  std::exception_ptr failure() const noexcept { return failure_; }
  /// Ends waits for other ranks. Breaks the job's communicators.
  void abort() noexcept { content_->abort(); }

 private:
  void work() noexcept;
  void lead();
  void follow();
  bool try_once();
  void pause(Duration delay);

  const std::unique_ptr<CheckpointContent> content_;
  const storage::Manifest manifest_;
  storage::CheckpointFolder folder_;
  const storage::Retention keep_;
  const int rank_;
  Outage& outage_;
  Reach& reach_;
  const std::shared_ptr<Waiter> waiter_;
  bool alone_ = false;  // on the caller's thread
  std::atomic<bool> ended_{false}, pausing_{false}, failed_{false}, given_up_{false};
  bool succeeded_ = false;
  storage::SaveReport report_;
  std::exception_ptr error_, failure_;
  std::thread thread_;
};

}  // namespace trireme::inline v0::checkpoint
