// The workers of a job whose processes others start, as its coordinator sees them come, get lost and
// leave: what follows for the job. Decides only, as ElasticGroup does; the standing coordinator tells the
// processes. Processes have the coordinator's numbers (rendezvous/roles.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/elastic_group.h"
#include "trireme/rendezvous/roles.h"

namespace trireme::inline v0::launch {

class StandingWorkers {
 public:
  /// Whom the end of the training is to be told: servers may end with it.
  enum class Tell : std::uint8_t { Nobody, Workers, All };
  /// To do, in this order. `line` is for the user.
  struct Decision {
    std::string line;
    std::optional<rendezvous::Epoch> epoch;  // the ranks change
    std::optional<int> stop;                 // ask the others to stop, by this signal
    Tell end_told_to = Tell::Nobody;
    int told_code = 0;             // with which it ends
    std::optional<int> exit_code;  // the job has ended, with this one
  };

  virtual ~StandingWorkers() = default;
  virtual Decision joined(int process) = 0;
  virtual Decision lost(int process, const std::string& how, TimePoint now) = 0;
  /// By itself: 0, or 130 or 143 since it was asked to stop.
  virtual Decision left(int process, int exit_code) = 0;
  /// Called all the time. `servers`: all of them are there.
  virtual Decision watch(TimePoint now, bool servers) = 0;
  /// Whether the training has begun, so that servers may have something that nobody else has.
  virtual bool begun() const = 0;
  /// Whether it has ended, but perhaps not all of its processes.
  virtual bool over() const = 0;
  /// Which workers are missing, so that the job can neither go on nor end: "there was no rank 0". Empty: none.
  virtual std::string lack() const = 0;
  /// "epoch 3, 2 ranks".
  virtual std::string describe() const = 0;
};

/// The workers' state that an earlier coordinator has saved; of a new job, its first epoch.
struct KnownWorkers {
  rendezvous::Epoch epoch;
  std::vector<int> joined;
  std::optional<int> ended_with;  // the exit code of a training that has ended
};

/// Workers that train together, as the ranks of an elastic job. More than `min` are waited for at the
/// start, for `gather`.
std::unique_ptr<StandingWorkers> ranks_of_epochs(const ElasticOptions& options, Duration gather,
                                                 const KnownWorkers& known);

/// Workers that train on their own, with servers: nobody waits for them. The training ends with rank 0, which
/// validates and saves; `begun` says whether one of them has trained.
std::unique_ptr<StandingWorkers> workers_on_their_own(const WorkerRange& range,
                                                      const rendezvous::Roles& roles,
                                                      std::function<bool()> begun,
                                                      const KnownWorkers& known);

}  // namespace trireme::inline v0::launch
