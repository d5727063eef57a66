// BackgroundSave: writes one checkpoint, on a thread of its own while the training goes on, or at
// once on the caller's.
//
// The other ranks' threads write files of their own, or send their shards to rank 0 (CheckpointContent).
// Rank 0 decides for all: a storage that is full or away for one of them (ResourceError) is tried again
// by all after growing pauses. Meanwhile the other ranks keep their copies. The tries end with success,
// with give_up(), or when the storage has failed for `patience`, over all saves of the job.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "trireme/base/waiter.h"
#include "trireme/checkpoint/reach.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::inline v0::checkpoint {

/// Tells since when a job's storage has failed. Belongs to one save at a time.
class Outage {
 public:
  explicit Outage(Duration patience) : patience_(patience) {}
  /// A save has failed: warns the first time and then every minute. False if the patience is over.
  bool go_on(TimePoint now, std::int64_t step, const std::string& reason);
  /// A save has succeeded: says so if it had failed before.
  void end(TimePoint now, std::int64_t step);

 private:
  const Duration patience_;
  std::optional<TimePoint> since_;
  TimePoint warned_{};
};

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
  /// On this thread, once: a failure within the patience is only warned of.
  void run_here();

  /// Rank 0: whether tries have failed, and the thread waits for the next one.
  bool is_pausing() const noexcept { return pausing_; }
  /// Rank 0: whether a try has failed so far.
  bool has_failed() const noexcept { return failed_; }
  /// No further try after the present one.
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
  /// Ends waits for other ranks: the job's communicators are broken then.
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
