#include "trireme/cli/torch/train_checks.h"

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/files.h"
#include "trireme/train/run/run_claim.h"

namespace trireme::inline v0::cli {
namespace {

constexpr const char* kWhoStartsServers =
    "Servers are started by `trireme train`, `trireme launch`, as ps replicas by a TFJob, and by "
    "you under `trireme coordinator --servers`.";

// Refuses an empty value, such as --resume "$RUN" with an unset variable.
void refuse_empty(const Command& command, const std::string& option, const std::string& value) {
  if (!command.given(option) || !value.empty()) return;
  refuse("train", option + " is empty", "Give it a value, or leave it out.");
}

}  // namespace

void check_options(const Command& command, const TrainOptions& options) {
  refuse_empty(command, "--out", options.out);
  refuse_empty(command, "--resume", options.resume);
  refuse_empty(command, "--trace", options.trace);
  refuse_empty(command, "--profile", options.profile);
  train::check_printable("--trace", options.trace);
  train::check_printable("--profile", options.profile);
  if (!options.changed.empty() && options.resume.empty() && !options.backup)
    refuse("train", "--changed " + options.changed.front() + " needs --resume",
           "A new run has nothing to change.");
  if (options.backup && options.out.empty())
    refuse("train", "--backup needs --out: started again, the command would not find its run",
           "Add --out DIR.");
  if (options.backup && !options.resume.empty() && options.resume != "auto")
    refuse("train", "--backup cannot be combined with --resume " + options.resume,
           "Leave --resume out: the same command goes on by itself.");
  if (options.validate && options.job.evaluators == 0)
    refuse("train", "--validate needs --evaluator 1", "Leave it out: rank 0 validates.");
}

void check_writable(const std::string& option, const std::string& path) {
  if (path.empty() || can_write(path)) return;
  refuse("train", "cannot write the file of " + option + ", " + path,
         "Give " + option + " a file in a folder that is there.");
}

void check_ranks(const TrainingJobOptions& options, const rendezvous::RankEnvironment& place) {
  if (options.evaluators > 0)
    refuse("config", "--evaluator 1, but " + place.launcher + " starts this job's processes",
           "Leave it out, and run `trireme eval RUN --follow` beside the training.");
  if (options.servers >= 0 && options.servers != place.servers)
    refuse("config",
           "--servers " + std::to_string(options.servers) + ", but " + place.launcher +
               " started " + std::to_string(place.servers),
           place.servers > 0 ? "Leave out --servers under " + place.launcher + "."
                             : kWhoStartsServers);
  const int workers = place.roles().workers;
  if (!options.ranks_given || options.ranks == workers) return;
  refuse("config",
         "--ranks " + std::to_string(options.ranks) + ", but " + place.launcher + " started " +
             std::to_string(workers) + " processes",
         "Leave out --ranks under " + place.launcher + ".");
}

void check_servers(const TrainingJob& job, const rendezvous::RankEnvironment& place) {
  if (job.plan.job.servers == place.servers) return;
  refuse("config",
         "the configuration takes " + counted(job.plan.job.servers, "server") + ", but " +
             place.launcher + " started " + std::to_string(place.servers),
         kWhoStartsServers);
}

void check_pace(const TrainingJob& job, const rendezvous::RankEnvironment& place) {
  const bool alone = job.plan.job.keeping.alone;
  if (alone == place.on_its_own) return;
  const std::string key = "server.staleness and server.backup";
  const bool by_variables = place.coordinator_beside_server;
  refuse("config",
         alone
             ? "by " + key + " each worker trains on its own, but the coordinator has elastic ranks"
             : "the coordinator has workers that train on their own, but by " + key +
                   " they train together",
         by_variables
             ? std::string("Set TRIREME_ELASTIC=") + (alone ? "workers" : "1") + " in all pods."
         : alone ? "Start `trireme coordinator` with --workers N."
                 : "Set server.staleness = 4, for example, or start `trireme "
                   "coordinator` without --workers.");
}

void check_transport(const TrainingJob& job, const rendezvous::RankEnvironment& place) {
  if (!job.plan.job.simulated) return;
  refuse("config",
         "transport sim runs all ranks in one process, but " + place.launcher + " started " +
             std::to_string(place.size),
         "Start it without " + place.launcher + ".");
}

void check_memory(const TrainingJob& job, const FitOptions& options) {
  const plan::TrainingPlan& plan = job.plan;
  if (plan.fits()) return;
  const std::optional<bool> fits = show_what_fits(job.config, plan, options);
  const std::string fitting =
      std::string(!fits   ? "Use a smaller batch.micro, memory.recompute or a smaller model"
                  : *fits ? "--fit takes a layout that fits"
                          : "None of these layouts fits: use more --ranks, memory.offload or a "
                            "smaller model") +
      "; `plan` says what needs it";
  const std::int64_t total = plan.rank_bytes(), limit = plan.job.memory_limit;
  if (!plan.keeps_to_limit())
    refuse("config",
           "a rank is predicted to take " + std::to_string(total) + " bytes, " +
               std::to_string(total - limit) + " more than memory.limit (" + std::to_string(limit) +
               ")",
           fitting + ".");
  refuse("config",
         "does not fit: " +
             (plan.fits_device() ? plan::host_refusal(plan) : plan::device_refusal(plan)),
         fitting + "; memory.limit = \"none\" starts it all the same.");
}

void check_hosts(const TrainingJob& job, const launch::HostOptions& hosts, bool launched) {
  if (hosts.hosts.empty() || (!launched && !job.plan.job.simulated)) return;
  refuse("config",
         std::string("-H cannot be combined with ") +
             (launched ? "another launcher" : "transport sim, which runs here alone"),
         "Leave out one of them.");
}

void check_store(const TrainingJob& job, bool own_coordinator) {
  if (own_coordinator || job.config.text("rendezvous.store").empty()) return;
  throw ConfigError(
      "rendezvous.store cannot be used in a job whose processes another launcher has started",
      {.operation = "config",
       .label = "rendezvous.store",
       .advice = "Leave it out. `trireme coordinator --store` coordinates such a "
                 "job, and may be killed."});
}

}  // namespace trireme::inline v0::cli
