// Membership: who belongs to the job, what each rank does, who failed first.
//
// The coordinator's table, without a network: every method takes the time. Not thread safe (the
// coordinator holds its lock). A rank calls judge() when a wait has expired: `timeout` bounds
// silence, not work (docs/architecture.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/rendezvous/roles.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::rendezvous {

/// Why a rank ended. The job's exit code and last line come from the first failure.
struct Failure {
  int rank = -1;
  std::string host;
  long step = -1;
  std::string operation;
  std::string sentence;
  int exit_code = 1;
  /// True if another rank's failure caused it: a peer or the coordinator was lost (160-169).
  bool secondary() const noexcept { return exit_code >= 160 && exit_code < 170; }
  /// True if the rank was asked to stop.
  bool stopped() const noexcept { return exit_code == 130 || exit_code == 143; }
};

/// A process that sends nothing for this many heartbeat intervals counts as lost, as does a
/// coordinator whose host acknowledges nothing for as long.
inline constexpr int kSilentHeartbeats = 4;

enum class Phase : std::uint8_t { Absent, Joined, Left, Ended };

struct PeerState {
  int rank = 0;
  std::string host;
  Phase phase = Phase::Absent;
  bool stopped = false;  // process state t or T: debugger or SIGSTOP
  Activity activity;
  Duration silent{};       // since its last heartbeat, or since it was last seen stopped
  Duration stopped_for{};  // since its last heartbeat
};

struct Table {
  std::vector<PeerState> peers;
  /// How long every rank has waited without any bytes moving (zero: some rank works).
  Duration quiet{};
};

/// The state letter in /proc/PID/stat ('R', 'S', 'T', 't', ...); 0 if there is no such process.
char process_state(pid_t pid);

class Membership {
 public:
  explicit Membership(Roles roles, std::function<char(pid_t)> state_of = process_state);

  int size() const noexcept { return roles_.processes(); }
  const Roles& roles() const noexcept { return roles_; }
  void set_process(int rank, pid_t pid, TimePoint now);
  /// Returns the reason why `rank` may not join; nullopt if it has joined.
  std::optional<std::string> join(int rank, std::string host, std::string identity, TimePoint now);
  void beat(int rank, Activity activity, TimePoint now);
  /// The launcher itself was stopped, so it could not hear any rank meanwhile.
  void forgive(TimePoint now);
  void leave(int rank, int exit_code = 0);
  void end(int rank);
  /// The process has ended, and a new one may join in its place.
  void forget(int rank);
  /// The ranks of an elastic job, ascending (epoch.h): table() has these alone.
  void set_members(std::vector<int> members, TimePoint now);
  bool is_member(int rank) const;
  /// Joined members and servers without a heartbeat for `silence` that are not stopped.
  std::vector<int> silent(Duration silence, TimePoint now);
  Phase phase(int rank) const { return rows_[rank].phase; }
  /// The exit code with which a process has left.
  int exit_code(int rank) const { return rows_[rank].exit_code; }
  const std::string& host(int rank) const { return rows_[rank].host; }
  const std::string& identity(int rank) const { return rows_[rank].identity; }

  /// Records a rank's first failure. False if that rank has already failed.
  bool fail(Failure failure);
  /// The first failure that is no stop and that no other failure caused; else the first stop; else
  /// the first failure.
  std::optional<Failure> first_failure() const;

  /// The table of the workers, or members, which wait for one another.
  Table table(TimePoint now);
  /// Whether one of the processes [first, end) has joined and was heard within `silence`.
  bool awaits(int first, int end, Duration silence, TimePoint now);

 private:
  struct Row {
    std::string host, identity;
    pid_t pid = -1;
    Phase phase = Phase::Absent;
    int exit_code = 0;  // with which it has left
    Activity activity;
    TimePoint seen{};      // its last heartbeat
    TimePoint held{};      // when it was last seen stopped
    TimePoint looked{};    // when the system was last asked for its state
    bool stopped = false;  // as it said then
  };
  bool stopped(Row& row, TimePoint now) const;
  void note_work(TimePoint now);

  const Roles roles_;
  std::vector<Row> rows_;     // by process
  std::vector<int> members_;  // processes of the ranks
  std::function<char(pid_t)> state_of_;
  TimePoint busy_{};               // when a worker, or member, was last seen working or stopped
  std::vector<Failure> failures_;  // in order of arrival
};

struct JudgeOptions {
  int self = 0;
  Duration timeout = std::chrono::seconds(30);
  Duration timeout_user_code = std::chrono::minutes(30);
};
struct Verdict {
  bool keep_waiting = false;
  std::string explanation;
  int lost_rank = -1;
  bool speak = false;  // this rank should print the explanation for all waiting ranks
};
Verdict judge(const Table& table, const std::string& operation, Duration waited,
              const JudgeOptions& options);

}  // namespace trireme::inline v0::rendezvous
