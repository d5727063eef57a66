#include "trireme/cli/torch/start_ranks.h"

#include <unistd.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/files.h"
#include "trireme/cli/launch/own_run.h"
#include "trireme/cli/light.h"
#include "trireme/job/job.h"
#include "trireme/job/options.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/output.h"
#include "trireme/rendezvous/launchers/mpi_meeting.h"
#include "trireme/rendezvous/launchers/socket_meeting.h"
#include "trireme/train/evaluation/follow_run.h"
#include "trireme/train/run/run_end.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::cli {

namespace {

constexpr int kMostRollBacks = 3;
constexpr std::string_view kRefused =
    "refused ";  // in place of a WorkerSpec; the exit code follows

std::string variable_of(const train::WorkerSpec& spec) {
  return std::string(kWorkerVariable) + "=" + spec.to_text();
}

// Whether a process was killed or lost its peers: the others may be in the middle of a step.
bool lost_a_process(const launch::LaunchResult& result) {
  const int code = result.failure->exit_code;
  return !result.out_of_time && result.stop_signal == 0 &&
         ((code > 128 && code < 160 && code != 130 && code != 143) || result.failure->secondary());
}

// Servers hold weights that no rank has, so a job with servers restarts from a checkpoint.
launch::Again roll_back(const launch::LaunchOptions& options, const train::WorkerSpec& spec) {
  return [=, times = 0](
             const launch::LaunchResult& result) mutable -> std::optional<launch::LaunchOptions> {
    if (!lost_a_process(result)) return std::nullopt;
    const auto say = [&](const std::string& what) {
      launch::write_all(STDERR_FILENO, "trireme: " + result.last_line + " " + what + "\n");
    };
    std::int64_t step = 0;
    try {
      step = train::RunFolder(spec.folder).newest_step();
    } catch (const Error& error) {  // the first failure is the job's, not this one
      launch::say(error.message() + " The job ends.");
      return std::nullopt;
    }
    if (step == 0) launch::say("there is no checkpoint to go back to; the job ends.");
    if (step == 0 || times == kMostRollBacks) return std::nullopt;
    say("All servers and ranks go back to step " + grouped(step) + ", the newest checkpoint (" +
        std::to_string(++times) + " of " + std::to_string(kMostRollBacks) + " times).");
    train::WorkerSpec resumed = spec;
    resumed.resume = true;
    launch::LaunchOptions next = options;
    next.environment = {variable_of(resumed)};
    next.elsewhere.environment = {variable_of(resumed.elsewhere())};
    return next;
  };
}

}  // namespace

int run_process(Role role, int argc, char** argv, const train::WorkerSpec& spec) noexcept {
  const auto run = role == Role::Server      ? train::run_server
                   : role == Role::Evaluator ? train::run_evaluator
                                             : train::run_training;
  return run(argc, argv, spec);
}

int start_ranks(const plan::PlannedJob& job, const launch::HostOptions& hosts,
                const train::Settings& settings, int argc, char** argv,
                const train::WorkerSpec& spec) {
  const bool elastic = settings.elastic.on() && !spec.trial;
  const std::string wanted = train::RunFiles(spec.folder).wanted_ranks();
  if (job.ranks == 1 && job.servers == 0 && !job.evaluator && hosts.hosts.empty() && !elastic)
    return train::run_training(argc, argv, spec);
  launch::LaunchOptions options;
  options.ranks = job.ranks;
  options.servers = job.servers;
  options.evaluator = job.evaluator;
  options.ends_with_rank0 = job.keeping.alone;
  if (job.keeping.alone && settings.elastic.restarts >= 0)
    options.restarts = settings.elastic.restarts;
  options.evaluator_grace = settings.job.timeout_user_code;
  if (elastic) {
    const train::RankChanges changes =
        train::rank_changes(settings.elastic, job.ranks, settings.strategy, settings.job,
                            settings.batches.batch / settings.batches.micro);
    options.elastic = changes.together;
    options.range = changes.alone;
    options.wanted_file = wanted;
    write_file(wanted, "", "train");  // empty: `resize` finds a job that it can ask
  }
  // The arguments are only for `ps`; the rank reads the variable.
  options.command = {this_executable(), "train", spec.folder};
  options.environment.push_back(variable_of(spec));
  options.elsewhere = hosts;
  options.elsewhere.environment.push_back(variable_of(spec.elsewhere()));
  options.elsewhere.shared_file = train::RunFiles(spec.folder).config();
  for (const int descriptor : {spec.corpus, spec.lock})
    if (descriptor >= 0) options.inherit.push_back(descriptor);
  options.rank0_direct = true;
  options.store = settings.coordinator_store;
  options.coordinator = coordinator_command();
  return launch::run(options,
                     job.servers > 0 && !spec.trial ? roll_back(options, spec) : launch::Again());
}

std::optional<rendezvous::RankEnvironment> under_launcher() {
  const rendezvous::RankEnvironment place = rendezvous::resolve_environment();
  if (place.launcher.empty()) {
    if (place.size > 1 && !place.elastic && !place.on_its_own)
      refuse("train",
             "`train` starts its ranks itself, but `trireme launch` has started " +
                 std::to_string(place.size) + " copies of it",
             "Start one: trireme train CONFIG --ranks " + std::to_string(place.size) + ".");
    return std::nullopt;
  }
  if (!place.meeting) rendezvous::meet_under_mpirun(place);
  return place;
}

int run_under_launcher(const rendezvous::RankEnvironment& place, int argc, char** argv,
                       const train::WorkerSpec& spec) {
  train::WorkerSpec told = spec;
  told.corpus = told.lock = -1;  // descriptors are valid only in rank 0
  const std::string mine = place.process() == 0 ? told.to_text() : "";
  const auto specs = place.meeting ? rendezvous::exchange_by_sockets(
                                         place, mine, job::resolve_options({}).timeout_user_code)
                                   : rendezvous::exchange_under_mpirun(mine);
  if (specs.front().starts_with(kRefused)) return std::stoi(specs.front().substr(kRefused.size()));
  told = train::WorkerSpec::from_text(specs.front());
  if (place.process() == 0) told = spec;
  return run_process(place.role, argc, argv, told);
}

void refuse_under_launcher(const rendezvous::RankEnvironment& place, int code) noexcept {
  if (!place.meeting) return;
  try {
    rendezvous::exchange_by_sockets(place, std::string(kRefused) + std::to_string(code),
                                    job::resolve_options({}).timeout);
  } catch (...) {  // the others have ended, or come too late: what was refused is what counts
  }
}

int evaluate_under_launcher(int argc, char** argv, const std::string& folder) {
  if (folder.empty())
    refuse("train", "the evaluator does not know the run's folder",
           "Name it by --out, in all processes.");
  // Skips the meeting of run_under_launcher().
  rendezvous::skip_meeting(train::stays_ended(train::RunFolder(folder)));
  return [&]() noexcept { return train::run_launched_evaluator(argc, argv, folder); }();
}

}  // namespace trireme::inline v0::cli
