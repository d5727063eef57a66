// ElasticRanks: does what an ElasticGroup decides about the ranks of an elastic job: tells the coordinator
// and the user, and starts processes again. It also kills processes that have fallen silent.
//
// The Supervisor owns it, and reports to it which workers have come and how they have ended. Used in the
// progress context.
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
  /// The process has joined. A worker waits for a place; others are none of these.
  void joined(int process);
  /// A process has ended, though nobody asked for it. True if that does not end the job.
  bool lost(int process, const Ending& ending);
  /// A worker could not be started again. `host`: the name of this host.
  void not_started(int process, const std::string& how, const std::string& host);
  /// The process has ended its training, if it was a rank. The last process is the last rank if there is none.
  void note_end(int process);
  /// The user asks for another number of ranks.
  void resize(int ranks);
  /// Kills ranks and servers that have fallen silent, so that their end is handled as any other.
  void end_silent();

 private:
  /// Not once a rank has ended its training: it would be missing among the next ranks.
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
