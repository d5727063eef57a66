// ElasticGroup: decides which processes are the ranks of an elastic job, and which are started again.
//
// Without processes, clocks or a network: the Supervisor reports what happens, and does what is
// decided. Each process has a place from 0 to max + spares - 1, and keeps it when it is started
// again. Not thread safe.
#pragma once

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
  int multiple = 1;      // the number of ranks is a multiple of it: those that share one copy
  int stages = 1;        // of these, the stages of a pipeline: the outermost axis
  int spares = 0;        // processes that are started and wait for a rank's place
  int restarts = 100;    // of processes, within an hour
  RestartPace pace;
  /// A rank or server without a heartbeat for so long is killed.
  Duration silence = std::chrono::seconds(6);
};

/// How few and how many workers a job may have whose workers train on their own.
struct WorkerRange {
  int min = 1, max = 1;
};

class ElasticGroup {
 public:
  /// Throws ConfigError unless 1 <= min <= ranks <= max, all of them multiples, and spares >= 0.
  ElasticGroup(const ElasticOptions& options, int ranks);
  /// For processes that others start, `joined` of which are there. The job is in `epoch`, and takes as
  /// many ranks as it may. All members of the epoch are ranks until lost() is called.
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
  /// To do, in this order. `line` is for the user.
  struct Decision {
    std::string line;
    std::optional<rendezvous::Epoch> epoch;
    std::vector<Start> starts;
    bool give_up = false;  // fewer than `min` ranks are left, and nobody comes
  };
  /// The process has ended; `how`: "rank 2 was killed by SIGKILL". `again`: it may be started again.
  Decision lost(int process, const std::string& how, bool again, TimePoint now);
  /// The last one that was to be started again could not be, since its host is away: that does not
  /// count among the restarts.
  void not_started();
  /// The process waits for a place.
  Decision joined(int process);
  /// The user asks for another number of ranks.
  Decision resize(int ranks, TimePoint now);

 private:
  enum class State : std::uint8_t { Free, Starting, Waiting, Rank };
  State& state_of(int process);
  std::vector<int> in(State state) const;
  int count(State state) const { return static_cast<int>(in(state).size()); }
  /// Gives places to waiting processes, the lowest first, and takes those that are too many.
  void fill_places();
  /// Which part of a copy of the model the process had when it was a rank last; nullopt: it was none.
  std::optional<int> part_of(int process) const;
  int least_needed(const std::vector<int>& ranks) const;
  rendezvous::Epoch next_epoch(bool at_step_end, const std::string& cause);
  bool may_restart(TimePoint now);
  std::string number_of_ranks() const;

  const ElasticOptions options_;
  int wanted_;
  std::vector<State> states_;  // by process
  rendezvous::Epoch epoch_;
  std::vector<int> last_ranks_;  // of the last epoch that had any
  /// Ranks of an epoch that ends with a step, which they have perhaps not done yet, and not of the next.
  std::vector<int> leaving_;
  std::deque<TimePoint> restarts_;
  std::vector<RestartDelay> delays_;  // by process
};

}  // namespace trireme::inline v0::launch
