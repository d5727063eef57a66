// JobChanges: the changes of an elastic job's ranks, as one of its processes sees them
// (docs/design/040-elastic-jobs.md).
//
// Between two epochs a process drops all that belongs to the communicators of the earlier one and
// calls enter_next(). run_elastic() (job/job.h) does it all. Belongs to the Job; thread safe,
// except for enter_next(), kept() and the agreed stop.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/rendezvous/epoch.h"

namespace trireme::inline v0 {

class JobChanges {
 public:
  /// The state that a process keeps from one epoch to the next (checkpoint/kept_state.h).
  struct Kept {
    virtual ~Kept() = default;
  };

  /// Whether the ranks may go on together after an error of a communicator: another rank is lost,
  /// does not come, or has lost the coordinator, which then tells the rest of another epoch.
  static bool may_go_on_after(const Error& error) noexcept;

  bool elastic() const noexcept { return process_ >= 0; }
  /// The epoch in which this process is a rank.
  rendezvous::Epoch epoch() const;
  /// The ranks are to finish their step, agree on that in its vote, and then enter the next epoch.
  bool due_at_step_end() const { return next().has_value(); }
  /// The latest epoch that this process has heard of, if it is after the present one.
  std::optional<rendezvous::Epoch> next() const;
  /// Whether there is a later epoch. Waits for one up to `patience`, unless the job fails. Throws
  /// what has ended the job for this process, if it is no failure of the job.
  bool await(Duration patience) const;
  /// Returns when this process is a rank of a later epoch, whose communicators the Job then has.
  /// Throws PeerLost if the job fails meanwhile. No Communicator of the Job may be in use.
  void enter_next() { enter_next_(); }
  /// When this process learned of the present epoch (steady_now()).
  TimePoint told() const;
  std::shared_ptr<Kept>& kept() noexcept { return kept_; }

  /// For the Job.
  void open(int process, std::shared_ptr<Waiter> waiter, std::function<void()> enter_next,
            std::function<void()> on_news);
  void adopt(const rendezvous::Epoch& epoch);
  /// Whether the present epoch has ended in the middle of a step; and the PeerLost that says why.
  bool broken() const;
  std::exception_ptr reason() const;
  void end(std::exception_ptr left_out = nullptr);
  /// While the coordinator is away no news of an epoch can come, so await() waits longer.
  void set_away(bool away);
  /// The ranks have agreed to stop, with the exit code 130 or 143; 0: they have not.
  void note_agreed_stop(int signal) noexcept { agreed_stop_ = signal; }
  int agreed_stop() const noexcept { return agreed_stop_; }
  /// The job is asked to stop: from now on a process without a place does not wait for one.
  void stop();
  /// Whether the epoch that this process enters is over: there is a later one, or none for it.
  bool is_over() const;
  /// Whether this process has heard neither of the job's end nor of a wish to stop it.
  bool goes_on() const;
  /// Waits for the next epoch in which this process is a rank; nullopt if the job ends or stops, or
  /// if this process itself gets a signal to stop.
  std::optional<rendezvous::Epoch> await_place() const;
  void entered(const rendezvous::Epoch& epoch);

 private:
  /// Takes in news under the lock, and wakes those who wait for them.
  void tell(const std::function<void()>& news);
  bool newer() const { return latest_ && (!entered_ || latest_->number > entered_->number); }

  int process_ = -1;
  std::shared_ptr<Waiter> waiter_;
  std::function<void()> enter_next_, on_news_;
  std::shared_ptr<Kept> kept_;
  std::atomic<int> agreed_stop_ = 0;
  mutable std::mutex mutex_;
  std::optional<rendezvous::Epoch> latest_, entered_;  // guarded by mutex_
  TimePoint told_{}, entered_told_{};                  // guarded by mutex_
  std::exception_ptr left_out_;                        // guarded by mutex_
  bool ended_ = false, stops_ = false, away_ = false;  // guarded by mutex_
};

}  // namespace trireme::inline v0
