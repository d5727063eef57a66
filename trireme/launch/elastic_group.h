// ElasticGroup: decides which processes are the ranks of an elastic job and which start again.
//
// Its owner reports events and carries out the decisions; it knows no clock and no network. Each
// process has a place from 0 to max + spares - 1, and keeps it when it is started again. Not thread
// safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/launch/restart_delay.h"
#include "trireme/rendezvous/epoch.h"

namespace trireme::inline v0::launch {

struct ElasticOptions {
  int min = 1, max = 1;  // ranks
  int multiple = 1;      // ranks per copy of the model; the job has a multiple of it
  int stages = 1;        // pipeline stages of a copy (the outermost axis)
  int spares = 0;        // more processes, which wait for a rank's place
  int restarts = 100;    // of all processes, within an hour
  RestartPace pace;
  /// A rank or server without a heartbeat for so long is killed.
  Duration silence = std::chrono::seconds(6);
};

/// The silence for a job in which ranks wait for a peer up to `timeout`, which must be longer.
inline Duration silence_of(Duration timeout) {
  return std::max<Duration>(timeout / 5, std::chrono::seconds(1));
}

/// The least and greatest number of workers, if they train on their own.
struct WorkerRange {
  int min = 1, max = 1;
};

class ElasticGroup {
 public:
  /// Throws ConfigError unless 1 <= min <= ranks <= max, all of them multiples, and spares >= 0.
  ElasticGroup(const ElasticOptions& options, int ranks);
  /// For processes that others start; those in `joined` are there. The job is in `epoch` and takes
  /// up to `max` ranks. All members of the epoch are ranks until lost() is called for them.
  ElasticGroup(const ElasticOptions& options, rendezvous::Epoch epoch,
               const std::vector<int>& joined);

  const rendezvous::Epoch& epoch() const noexcept { return epoch_; }
  bool is_member(int process) const { return epoch_.rank_of(process).has_value(); }
  /// The processes of a new job.
  std::vector<int> first_processes() const;

  struct Start {
    int process = 0;
    Duration delay{};
  };
  /// Steps for the owner, in this order. `line` is for the user.
  struct Decision {
    std::string line;
    std::optional<rendezvous::Epoch> epoch;
    std::vector<Start> starts;
    bool give_up = false;  // fewer than `min` ranks are left, and none will come
  };
  /// The process has ended; `how`: "rank 2 was killed by SIGKILL". `again`: it may start again.
  Decision lost(int process, const std::string& how, bool again, TimePoint now);
  /// The latest restart failed because its host is away, and does not count as one.
  void not_started();
  /// The process has joined and waits for a place.
  Decision joined(int process);
  /// Whether the process has lost its place at the end of a step that its loss would interrupt.
  bool is_leaving(int process) const { return std::ranges::count(leaving_, process) > 0; }
  /// All ranks of the epoch have entered it, so nobody needs the leaving processes any more.
  void met() { leaving_.clear(); }
  /// The user asks for another number of ranks.
  Decision resize(int ranks, TimePoint now);

 private:
  enum class State : std::uint8_t { Free, Starting, Waiting, Rank };
  State& state_of(int process);
  std::vector<int> in(State state) const;
  int count(State state) const { return static_cast<int>(in(state).size()); }
  /// Gives places to waiting processes, the lowest first; takes surplus places away.
  void fill_places();
  /// The process's part of a copy of the model in the last epoch that had ranks; nullopt: none.
  std::optional<int> part_of(int process) const;
  int least_needed(const std::vector<int>& ranks) const;
  rendezvous::Epoch next_epoch(bool at_step_end, const std::string& cause);
  bool may_restart(TimePoint now);
  std::string number_of_ranks() const;

  const ElasticOptions options_;
  int wanted_;
  std::vector<State> states_;  // by process
  rendezvous::Epoch epoch_;
  std::vector<int> last_ranks_;  // of the last epoch that had ranks
  /// Ranks that lost their place at the end of a step, and may not have finished that step yet.
  std::vector<int> leaving_;
  std::deque<TimePoint> restarts_;
  std::vector<RestartDelay> delays_;  // by process
};

}  // namespace trireme::inline v0::launch
