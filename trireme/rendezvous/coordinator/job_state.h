// JobState: a coordinator's knowledge of its job, and its decisions. If there is a store, each
// change is saved first; then the processes that it concerns are told.
//
// Service owns it and takes its lock before every use. The parts are public, for calls that concern
// one alone; the methods make changes that concern several. Only for .cc files of rendezvous
// (gRPC's headers).
#pragma once

#include <optional>
#include <set>
#include <string>

#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/coordinator/exchanges.h"
#include "trireme/rendezvous/coordinator/news_streams.h"
#include "trireme/rendezvous/coordinator/server_reports.h"
#include "trireme/rendezvous/coordinator/sessions.h"
#include "trireme/rendezvous/coordinator/state_saver.h"
#include "trireme/rendezvous/membership.h"

namespace trireme::inline v0::rendezvous {

/// Who was told that the training ends.
struct TrainingEnd {
  int stop_signal = 0;   // that ranks were asked to stop by; 0: none
  bool workers = false;  // workers that train on their own: rank 0 has ended the training
  bool all = false;      // the workers have ended, and all others must end
  int exit_code = 0;     // with which it has ended: 130 or 143 if ranks were asked to stop
  bool told_to(Role role) const noexcept { return all || (workers && role == Role::Worker); }
};

class JobState {
 public:
  /// Goes on from the state that an earlier coordinator left in the store. Throws ConfigError if it
  /// is another job's.
  explicit JobState(CoordinatorOptions from);
  const Roles& roles() const { return members.roles(); }
  bool elastic() const { return options.elastic.has_value(); }
  const Epoch& epoch() const { return epoch_; }
  const TrainingEnd& end() const { return end_; }
  /// Whether the job depends on the process. An elastic job depends on those that have a place.
  bool matters(int process) const { return !elastic() || members.is_member(process); }
  /// Whether the others can go on without the process.
  bool can_lose(int process) const;

  /// Records a failure; tells all unless another one caused it. False if not the rank's first.
  bool record(Failure failure);
  /// Tells all the first failure, once.
  void announce();
  /// The process has left or ended: exchanges to which it has not given its value fail.
  void gone(int process, const std::string& why);
  /// Another process may join in its place. Ends this one's session, even if it still runs.
  void forget(int process);
  /// The same, but this one may go on calling until the other one has joined. Does not save.
  void vacate(int process);
  /// From here to finish(): see Coordinator and JobControl.
  std::optional<ServerView> lose_server(int server);
  void reset_server(int server);
  bool lose_worker(int worker);
  /// The same, of a worker that nobody starts again. False if it is rank 0, or if the servers need
  /// more workers than are left.
  bool lose_worker_for_good(int worker);
  void regroup(const Epoch& epoch);
  void stop(int signal);
  void finish(bool workers_only, int exit_code);
  /// Answers every open call, and ends all streams.
  void close();
  /// Tells a new stream everything that its process may have missed.
  void tell_present(Watcher& watcher) const;
  /// Tells all the servers' view.
  void tell_server_view();
  /// False if the store has failed for good; then nobody is told.
  bool save();

  CoordinatorOptions options;  // never change
  Membership members;
  Sessions sessions;
  NewsStreams streams;
  Exchanges exchanges;
  ServerReports servers;
  StateSaver saver;

 private:
  void adopt(const Epoch& epoch);
  void restore();

  Epoch epoch_;  // of an elastic job
  TrainingEnd end_;
  bool announced_ = false;  // the first failure
  // Workers that were lost for good: a process that takes the place does not train.
  std::set<int> lost_;
};

}  // namespace trireme::inline v0::rendezvous
