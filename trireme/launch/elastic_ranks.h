// ElasticRanks: carries out an ElasticGroup's decisions: tells the coordinator and the user, and
// starts processes again. It also kills processes that have fallen silent.
//
// The Supervisor owns it, and reports which workers came and how they ended. Used in the progress
// context.
#pragma once

#include <string>

#include "trireme/launch/elastic_group.h"
#include "trireme/launch/hosts/host.h"
#include "trireme/launch/workers.h"

namespace trireme::inline v0::launch {

class ElasticRanks {
 public:
  /// Throws ConfigError as ElasticGroup does.
  ElasticRanks(const JobContext& job, Processes& processes, ProcessStarter& starter, JobStop& stop,
               Workers& workers);

  const rendezvous::Epoch& epoch() const noexcept { return group_.epoch(); }
  /// The process has joined. Servers and the evaluator are ignored.
  void joined(int process);
  /// A process has ended without being asked. True if the job goes on.
  bool lost(int process, const Ending& ending);
  /// A worker could not be started again. `host`: the name of this host.
  void not_started(int process, const std::string& how, const std::string& host);
  /// The process has ended. If it was a rank, its training counts as ended; so does that of the last
  /// process of a job that was stopped while it had no ranks.
  void note_end(int process);
  /// The user asks for another number of ranks.
  void resize(int ranks);
  /// Kills ranks and servers that have fallen silent; their end is then handled like any other.
  void end_silent();

 private:
  /// False once a rank has ended its training: the next epoch would miss it.
  bool may_change() const;
  void carry_out(const ElasticGroup::Decision& decision);
  std::string how_it_was_lost(int process, const Ending& ending) const;

  const JobContext& job_;
  Processes& processes_;
  ProcessStarter& starter_;
  JobStop& stop_;
  Workers& workers_;
  ElasticGroup group_;
  TimePoint looked_{};  // when end_silent() looked last
};

}  // namespace trireme::inline v0::launch
