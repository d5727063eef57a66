// How a process of an elastic job gets from one epoch to the next (job_changes.h).
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/job/job_impl.h"
#include "trireme/job/stop_signal.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0 {

Job::Impl::Impl(SimulatedProcess one, JobOptions given)
    : status(-1), options(std::move(given)), simulated(std::move(one)), process(simulated.process) {
  changes.open(
      process, simulated.waiter, [this] { enter_next_epoch(); }, [this] { break_epoch(); });
}

// A process without a place waits for one until the job ends.
void Job::Impl::enter_next_epoch() {
  for (;;) {
    groups.drop();
    const std::optional<rendezvous::Epoch> epoch = changes.await_place();
    if (!epoch) end_without_place();
    changes.entered(*epoch);
    env.rank = *epoch->rank_of(process);
    env.size = env.workers = static_cast<int>(epoch->members.size());
    try {
      return simulated.connect ? form_simulated(simulated.connect(*epoch), epoch->members) : form();
    } catch (const Error& error) {
      const bool waits = JobChanges::may_go_on_after(error);
      if (changes.await(waits ? options.timeout : Duration::zero())) continue;
      if (finished) end_without_place();  // the others had taken their last step before
      throw;
    }
  }
}

// Writes the output of earlier epochs, and ends without destructors, since other threads still run.
// If the process ends by its own signal, the others lose it and go on.
void Job::Impl::end_without_place() {
  if (const std::exception_ptr failed = groups.failure()) std::rethrow_exception(failed);
  if (!client) throw PeerLost("the job has ended");
  client->leave(changes.goes_on() ? 1 : 0);
  std::fflush(nullptr);
  std::_Exit(job::stop_signal());
}

void Job::Impl::form_simulated(std::shared_ptr<net::Transport> transport,
                               const std::vector<int>& members) {
  hosts.clear();
  // A rank without a network is on this host.
  const bool alone = transport->name() == "alone";
  for (const int one : members)
    hosts.push_back(
        alone ? rendezvous::process_environment("TRIREME_HOST").value_or(observe::host_name())
              : "simulated-" + std::to_string(one));
  host = hosts[static_cast<std::size_t>(env.rank)];
  places = rendezvous::places_of(hosts, env.rank);
  set_up_groups(std::move(transport), simulated_options());
}

void Job::Impl::break_epoch() {
  if (changes.elastic() && changes.broken()) groups.abort(changes.reason());
}

int run_elastic(Job& job, const std::function<int()>& body) {
  JobChanges& changes = job.changes();
  for (;;) {
    try {
      return body();
    } catch (const RanksChanged&) {
    } catch (const Error& error) {
      if (!JobChanges::may_go_on_after(error) || !changes.await(job.options().timeout)) throw;
    }
    job.activity("regroup");
    changes.enter_next();
    job.activity("train");
  }
}

}  // namespace trireme::inline v0
