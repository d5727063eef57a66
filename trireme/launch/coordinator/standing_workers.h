// StandingWorkers: decides what follows for a job when workers, which others start, come, are lost
// or leave. It only decides, as ElasticGroup does; the standing coordinator tells the processes.
// Processes have the coordinator's numbers (rendezvous/roles.h).
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
  /// Who is told that the training has ended. All: servers and the evaluator, too.
  enum class Tell : std::uint8_t { Nobody, Workers, All };
  /// Steps for the coordinator, in this order. `line` is for the user.
  struct Decision {
    std::string line;
    std::optional<rendezvous::Epoch> epoch;  // the ranks change
    std::optional<int> stop;                 // ask the others to stop, by this signal
    Tell end_told_to = Tell::Nobody;
    int told_code = 0;             // the exit code that they are told
    std::optional<int> exit_code;  // the job has ended with this code
  };

  virtual ~StandingWorkers() = default;
  virtual Decision joined(int process) = 0;
  virtual Decision lost(int process, const std::string& how, TimePoint now) = 0;
  /// It has ended by itself. `exit_code`: 0, or 130 or 143 if it was asked to stop.
  virtual Decision left(int process, int exit_code) = 0;
  /// Called every 100 ms. `servers`: all of them are there.
  virtual Decision watch(TimePoint now, bool servers) = 0;
  /// Whether the training has begun, so that servers may have something that nobody else has.
  virtual bool begun() const = 0;
  /// Whether the training has ended, but perhaps not all of its processes.
  virtual bool over() const = 0;
  /// Missing workers, without which the job can neither go on nor end: "there was no rank 0", or
  /// "".
  virtual std::string lack() const = 0;
  /// "epoch 3, 2 ranks".
  virtual std::string describe() const = 0;
};

/// The workers' state that an earlier coordinator saved; for a new job only the first epoch.
struct KnownWorkers {
  rendezvous::Epoch epoch;
  std::vector<int> joined;
  std::optional<int> ended_with;  // the exit code of a training that has ended
};

/// Workers that train together, as ranks of an elastic job. It begins `gather` after `min` came.
std::unique_ptr<StandingWorkers> ranks_of_epochs(const ElasticOptions& options, Duration gather,
                                                 const KnownWorkers& known);

/// Workers that train on their own, with servers: nobody waits for them. The training ends with
/// rank 0, which validates and saves. `begun`: whether one of them has trained.
std::unique_ptr<StandingWorkers> workers_on_their_own(const WorkerRange& range,
                                                      const rendezvous::Roles& roles,
                                                      std::function<bool()> begun,
                                                      const KnownWorkers& known);

}  // namespace trireme::inline v0::launch
