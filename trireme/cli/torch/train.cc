// trireme train: checks everything, plans, claims the run's folder, starts the ranks.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/refuse.h"
#include "trireme/base/shell_word.h"
#include "trireme/base/words.h"
#include "trireme/cli/cluster.h"
#include "trireme/cli/files.h"
#include "trireme/cli/launch/shared_options.h"
#include "trireme/cli/opening.h"
#include "trireme/cli/program.h"
#include "trireme/cli/torch/beside_coordinator.h"
#include "trireme/cli/torch/coordinated.h"
#include "trireme/cli/torch/fit/fit.h"
#include "trireme/cli/torch/start_ranks.h"
#include "trireme/cli/torch/train_checks.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/observe/events.h"
#include "trireme/observe/log.h"
#include "trireme/observe/terminal.h"
#include "trireme/plan/link.h"
#include "trireme/show/schedule/recorded_schedule.h"
#include "trireme/storage/storage.h"
#include "trireme/train/evaluation/evaluation_record.h"
#include "trireme/train/evaluation/follow_run.h"
#include "trireme/train/plan/job_plan.h"
#include "trireme/train/run/resume_changes.h"
#include "trireme/train/run/run_claim.h"
#include "trireme/train/run/run_end.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::cli {
namespace {

// "--changed KEY=VALUE" is "--changed KEY --set KEY=VALUE".
void split_changed(TrainOptions& options) {
  for (std::string& key : options.changed) {
    const auto equals = key.find('=');
    if (equals == std::string::npos) continue;
    options.job.set.push_back(key);
    key.resize(equals);
  }
}

// True if the storage cannot be read now.
bool may_have_checkpoint(const train::RunFolder& run) {
  try {
    return run.newest_step() > 0;
  } catch (const Error&) {
    return true;
  }
}

void say_next(const TrainOptions& options, const std::string& typed, const train::RunFolder& run,
              const TrainingJob& job, int code) {
  const std::string program = shell_word(typed), folder = shell_word(run.path());
  if (code == 0 && !job.writes_text) {
    say(options.json, "next: " + program + " eval " + folder);
  } else if (code == 0) {
    const std::string opening = usual_opening(job.corpus->train());
    say(options.json, "next: " + program + " generate " + folder +
                          (opening.empty() ? "" : " --prompt \"" + opening + "\""));
  } else if (code == static_cast<int>(ExitCode::NoDeviceMemory)) {
    show_what_takes_less(job.config, job.plan,
                         {.ranks = options.job.ranks,
                          .ranks_here = options.job.ranks_on_this_host(),
                          .new_job = options.resume.empty(),
                          .json = options.json});
  } else if (code == 130 || code == 143) {
    const bool resumes = may_have_checkpoint(run);
    if (!resumes) say(options.json, "no checkpoint was written; the run begins anew:");
    say(options.json,
        "next: " + program + " train " +
            (resumes ? "--resume " + folder
                     : shell_word(run.config()) + " --out " + folder + " --resume auto") +
            (options.job.ranks > 1 ? " --ranks " + std::to_string(options.job.ranks) : "") +
            (options.hosts.list.empty() ? "" : " -H " + shell_word(options.hosts.list)) +
            (options.hosts.file.empty() ? "" : " --hostfile " + shell_word(options.hosts.file)) +
            (options.job.evaluators > 0 ? " --evaluator 1" : ""));
  }
}

// Draws the last step of a traced pipeline above a simulation of the same passes. Errors here do
// not fail the training.
void draw_passes(const plan::PlannedJob& job, const train::RunFolder& folder, bool json) {
  try {
    const std::string text = read_file(folder.passes(), "", {.operation = "trace"});
    const std::string name = std::filesystem::path(job.schedule).filename().string();
    const show::DrawnSchedule run = show::read_recorded(text, name);
    const show::DrawnSchedule again = show::simulated_again(run);
    const std::string figures = show::compare_text(run, again);
    write_file(folder.passes_picture(), show::svg_of(run, again, figures), "trace");
    say(json, "\n" + figures + "the last step's passes are drawn in " + folder.passes_picture());
  } catch (const Error& error) {
    say(json, "the recorded passes make no picture: " + error.message());
  }
}

// The time of a step if the job's cores did nothing but large products. Ranks that `train` starts
// share this process's cores; each rank of a launcher is assumed to have as many.
double product_seconds(const plan::TrainingPlan& plan, bool own_ranks) {
  const plan::PlannedJob& job = plan.job;
  if (job.product_rate <= 0) return 0;
  if (plan.on_device())
    return job.flops_per_micro * static_cast<double>(plan.micro_batches) * job.ranks_per_device /
           job.ranks / job.product_rate;
  const int cores = std::max(1, job.usable_cores / job.kernel_threads);
  const int products =
      own_ranks ? std::min(job.ranks * plan.lanes, cores) : job.ranks * std::min(plan.lanes, cores);
  return job.flops_per_micro * static_cast<double>(plan.micro_batches) / products /
         job.product_rate;
}

// Records the plan of a new run, and the changes of a resumed run, whose file has a plan already.
void write_first_events(const TrainingJob& job, const train::RunClaim& claim,
                        const std::vector<train::Change>& changes, bool json) {
  const std::string path = claim.folder().events();
  observe::EventWriter plan, changed;
  if (!claim.resumes() && !claim.joins()) plan.open(path);
  plan.echo_to_stdout(json);
  plan.write(train::plan_event(job.plan));
  if (!changes.empty()) changed.open(path);
  changed.echo_to_stdout(json);
  for (const train::Change& change : changes) {
    changed.write(train::event_of(change, static_cast<long>(claim.folder().newest_step())));
    say(json, "changed  " + change.key + " = " + change.now + " (" + change.source + "), before " +
                  change.before);
  }
}

// The refinement of --fit; empty without it. A trial starts its ranks, all on this host, which a
// rank of a launcher cannot do.
Refine refine_of(bool fits, const FitOptions& fitting) {
  if (!fits) return {};
  return [=](config::Config& config, const train::Settings& settings, const input::Corpus& corpus) {
    FitOptions how = fitting;
    how.tries = how.tries && settings.job.transport != "sim";
    fit(config, settings, corpus, how);
  };
}

int run_simulated(int ranks, const std::string& link, const train::WorkerSpec& spec) {
  train::set_up_training(spec);
  int code = 0;
  run_on_cluster(ranks, plan::link_of(link), [&](const auto& transport, const auto& tuning) {
    code = train::run_simulated_rank(transport, tuning, spec);
  });
  return code;
}

// The settings that ranks are given. `own_ranks`: `train` starts them.
train::WorkerSpec spec_of(const TrainOptions& options, const TrainingJob& job,
                          const train::RunClaim& claim, bool own_ranks, TimePoint began) {
  const bool alone = !options.trial && !claim.shared();  // no other process locks for this job
  const auto lock = alone ? storage::Claim::of(claim.folder().locked_place()) : nullptr;
  return {.folder = claim.folder().path(),
          .trace = options.trace,
          .profile = options.profile,
          .recompute = job.plan.job.recompute,
          .device = job.device.kind,
          .spare_device = train::Settings(job.config).elastic.on() ? -1 : job.device.spare,
          .transport = job.plan.job.transport == "nccl" ? "nccl" : "",
          .resume = claim.resumes(),
          .json = options.json,
          .validates = options.job.evaluators == 0 || options.validate,
          .trial = options.trial,
          .terminal = observe::is_own_terminal(options.json ? STDERR_FILENO : STDOUT_FILENO),
          .predicted_bytes = job.plan.on_device()     ? job.plan.rank_bytes()
                             : job.plan.job.simulated ? job.plan.host_total()
                                                      : job.plan.memory.total(),
          .predicted_step = job.plan.step_seconds(),
          .predicted_snapshot = job.plan.memory.snapshot,
          .predicted_copies = job.plan.memory.copies,
          .product_seconds = product_seconds(job.plan, own_ranks),
          .corpus = job.corpus->descriptor(),
          .lock = claim.lock_descriptor(),
          .claim = lock ? lock->digest() : "",
          .began = began.time_since_epoch().count()};
}

// With -H the ranks are as many as there are slots, unless --ranks says otherwise.
launch::HostOptions take_hosts(TrainOptions& options) {
  launch::HostOptions hosts = host_options(options.hosts);
  if (hosts.hosts.empty()) return hosts;
  if (!options.job.ranks_given) options.job.ranks = launch::slots_of(hosts.hosts);
  int most = 0;
  for (const int count : launch::workers_by_host(options.job.ranks, hosts.hosts))
    most = std::max(most, count);
  options.job.ranks_here = most;
  options.job.server_hosts = static_cast<int>(hosts.hosts.size());
  return hosts;
}

// Locks checkpoint.path for this job, which also shows before the first step that it is writable.
// Null if it is unset or in RUN's checkpoint/, since RUN is locked as a whole, and for a trial of
// --fit, which saves nothing.
std::shared_ptr<void> hold_checkpoints(const TrainingJob& job, const TrainOptions& options,
                                       train::RunClaim& claim) {
  if (options.trial) return nullptr;
  const std::string& place = job.config.text("checkpoint.path");
  const train::RunFolder& run = claim.folder();
  std::shared_ptr<void> held;
  if (run.contains(place)) claim.make_folder();
  if (!place.empty() && !run.is_own_checkpoint(place)) {
    const storage::Location location = storage::open_location(place);
    held = location.storage->lock(location.path);
    if (!held)
      refuse("config", "checkpoint.path " + place + " cannot be written to",
             "Check the folder's permissions.");
  }
  claim.keep_checkpoints_at(place);
  return held;
}

// Adopts what the launcher has decided. Runs every process but process 0 and returns its exit code;
// nullopt: this is process 0.
std::optional<int> follow_launcher(TrainOptions& options,
                                   const rendezvous::RankEnvironment& launcher,
                                   const Program& program) {
  check_ranks(options.job, launcher);
  options.job.ranks = launcher.roles().workers;
  options.job.ranks_here = launcher.local_size;
  options.job.server_hosts = 0;
  options.job.starter = launcher.launcher;
  if (launcher.servers > 0) options.job.servers = launcher.servers;
  if (launcher.role == Role::Evaluator)
    return evaluate_under_launcher(program.argc(), program.argv(), options.out);
  if (launcher.process() == 0) return std::nullopt;
  return run_under_launcher(launcher, program.argc(), program.argv(), {});
}

// The same in a job that `trireme coordinator` serves.
std::optional<int> follow_coordinator(TrainOptions& options,
                                      const rendezvous::RankEnvironment& coordinated,
                                      const Program& program) {
  if (options.out.empty())
    refuse("train", "the processes of a coordinator do not know the run's folder",
           "Name it by --out, in all processes.");
  if (!options.resume.empty() && options.resume != "auto")
    refuse("train", "--resume " + options.resume + " under a coordinator",
           "Leave it out: the job goes on with what is in --out.");
  if (!options.hosts.empty())
    refuse("train", "-H or --hostfile under a coordinator",
           "Leave it out: whoever starts the processes places them.");
  check_ranks(options.job, coordinated);
  if (coordinated.starts_coordinator()) {
    TrainingJobOptions job = options.job;
    if (job.config.empty()) job.config = train::RunFiles(options.out).config();
    return run_beside_coordinator(coordinated, training_configuration(job), program.argc(),
                                  program.argv());
  }
  if (coordinated.process() > 0)
    return follow_under_coordinator(coordinated, program.argc(), program.argv(), options.out);
  options.job.ranks = coordinated.size;
  options.job.ranks_here = coordinated.local_size;
  options.job.server_hosts = 0;
  options.job.starter = coordinated.launcher;
  if (coordinated.servers > 0) options.job.servers = coordinated.servers;
  options.resume = "auto";
  // elastic.* may be unset here: the coordinator has the values.
  if (!coordinated.on_its_own && options.job.restarts < 0) options.job.restarts = 1;
  return std::nullopt;
}

// Removes the checkpoints that a finished training no longer needs.
void remove_backup(const train::RunFolder& folder, const config::Config& config, bool json) {
  const storage::CheckpointFolder checkpoints = folder.checkpoints();
  try {
    const std::size_t before = checkpoints.steps().size();
    checkpoints.remove_outdated(
        {/*newest=*/1, /*hours=*/0, static_cast<int>(config.integer("checkpoint.keep_best"))});
    const std::vector<std::int64_t> left = checkpoints.steps();
    if (left.empty() || left.size() == before) return;
    say(json, "the backup is removed; the checkpoint of step " + grouped(left.back()) + " stays");
  } catch (const ResourceError& error) {
    observe::warning("the backup is not removed: " + error.message());
  }
}

void complete(const TrainOptions& options, const TrainingJob& job, const train::RunFolder& folder) {
  if (options.backup) remove_backup(folder, job.config, options.json);
  if (!options.trace.empty() && job.plan.job.pipeline > 1)
    draw_passes(job.plan.job, folder, options.json);
}

// A resumed run has as many ranks as before, unless something else decides how many.
void take_former_ranks(TrainOptions& options, const train::RunFolder& folder) {
  if (options.job.ranks_given) return;
  const std::optional<int> ranks = train::former_ranks(folder);
  if (!ranks || *ranks == options.job.ranks) return;
  options.job.ranks = *ranks;
  observe::info("resuming with " + counted(*ranks, "rank") + ", as before; --ranks changes that");
}

// A resumed run goes on with its own configuration, if none is given.
void take_config_of_run(TrainOptions& options, const train::RunFolder& folder) {
  if (folder.take_former_config())
    observe::info(
        "the last start ended before it had loaded a checkpoint, so the run has the configuration "
        "again that it had before that start; give changed values again");
  if (!options.job.config.empty()) return;
  options.job.config = folder.config();
  options.job.name = std::filesystem::path(folder.path()).filename().string();
}

// How this process was started: by a launcher, in a job of `trireme coordinator`, or by a user.
struct Start {
  std::optional<rendezvous::RankEnvironment> launcher, coordinated;
  launch::HostOptions hosts;
  TimePoint began;
  bool told = false;  // the launcher's other processes know what to do
};

// In process 0, which decides what all do.
int train_as_first(TrainOptions options, const Program& program, Start& start) {
  const auto& [launcher, coordinated, hosts, began, told] = std::as_const(start);
  if (options.backup) options.resume = "auto";
  options.job.under_mpirun = launcher && !launcher->meeting;
  options.job.predicts_time = !options.trial;
  train::RunClaim claim(
      {.out = options.out, .resume = options.resume, .shared = coordinated.has_value()});
  check_writable("--trace", options.trace);
  check_writable("--profile", options.profile);
  if (claim.resumes()) take_config_of_run(options, claim.folder());
  const bool own_ranks = !launcher && !coordinated;
  if (claim.resumes() && own_ranks && hosts.hosts.empty())
    take_former_ranks(options, claim.folder());
  split_changed(options);
  const FitOptions fitting{.ranks = options.job.ranks,
                           .ranks_here = options.job.ranks_on_this_host(),
                           .new_job = !claim.resumes(),
                           .tries = own_ranks && hosts.hosts.empty(),
                           .json = options.json};
  TrainingJob job = prepare(options.job, refine_of(options.fit, fitting));
  check_memory(job, fitting);
  if (options.job.evaluators > 0)
    train::check_evaluator(train::Settings(job.config), options.validate);
  if (launcher) check_transport(job, *launcher);
  if (launcher || coordinated) check_servers(job, launcher ? *launcher : *coordinated);
  if (coordinated) check_pace(job, *coordinated);
  check_hosts(job, hosts, launcher.has_value());
  check_store(job, own_ranks || (coordinated && coordinated->coordinator_beside_server));
  const std::shared_ptr<void> held = hold_checkpoints(job, options, claim);
  std::vector<train::Change> changes;
  if (claim.resumes())
    changes = train::check_changes(job.config, job.corpus->hash(), claim.folder(), options.changed);
  if (claim.resumes() && options.job.evaluators > 0) train::EvaluationRecord::check(claim.folder());
  const train::RunFolder folder = claim.take(job.plan.job.name);
  if (claim.resumes()) folder.keep_config();
  std::filesystem::remove(folder.wanted_ranks());  // start_ranks() makes it if it can be asked
  folder.write_config(job.config);
  write_first_events(job, claim, changes, options.json);
  if (!job.device.note.empty()) say(options.json, job.device.note);
  say(options.json, plan::explain(job.plan) + "  run      " + folder.path());
  const bool simulated = job.plan.job.simulated;
  const train::WorkerSpec spec = spec_of(options, job, claim, own_ranks, began);
  const auto run = [&] {
    if (coordinated)
      return run_under_coordinator(*coordinated, program.argc(), program.argv(), spec);
    start.told = true;
    if (launcher) return run_under_launcher(*launcher, program.argc(), program.argv(), spec);
    if (!simulated)
      return start_ranks(job.plan.job, hosts, train::Settings(job.config), program.argc(),
                         program.argv(), spec);
    return run_simulated(options.job.ranks, job.config.text("comm.link"), spec);
  };
  const int code = run();
  if (code == 0) complete(options, job, folder);
  say_next(options, program.typed(), folder, job, code);
  return code;
}

int train_command(TrainOptions options, const Program& program) {
  if (options.help_config) {
    std::fputs(train::training_help().c_str(), stdout);
    return 0;
  }
  const TimePoint began = steady_now();
  if (options.job.ranks_given && rendezvous::in_batch_script()) rendezvous::ignore_launchers();
  Start start{.launcher = under_launcher(),
              .coordinated = {},
              .hosts = take_hosts(options),
              .began = began};
  start.coordinated = under_coordinator();
  if (const auto code = start.launcher ? follow_launcher(options, *start.launcher, program)
                        : start.coordinated
                            ? follow_coordinator(options, *start.coordinated, program)
                            : std::nullopt)
    return *code;
  try {
    return train_as_first(std::move(options), program, start);
  } catch (...) {
    if (!start.launcher || start.told) throw;
    const int code = print_error(std::current_exception());  // the others may not be there yet
    refuse_under_launcher(*start.launcher, code);
    return code;
  }
}

}  // namespace

void declare_train(Command& command) {
  auto& options = command.keep<TrainOptions>();
  command.about("Train a model on N ranks, of this host or of several")
      .footer("Example:\n  trireme train configs/gpt-nano.toml --ranks 2 --set train.steps=20");
  add_training_options(command, options.job);
  add_host_options(command, options.hosts);
  command.option("--out", options.out,
                 "Folder of the run, new or empty (default: the next free runs/NAME)");
  command.option("--resume", options.resume,
                 "RUN: continue it, with as many ranks as before; auto: continue in --out where it "
                 "has a checkpoint");
  command.flag("--backup", options.backup,
               "Started again by the same command, go on in --out where the last start was killed "
               "(as --resume auto); when the training is done, only its last checkpoint stays");
  command
      .option("--changed", options.changed,
              "KEY or KEY=VALUE: a value that decides bits and that the resumed run is to "
              "have otherwise, on purpose; as often as wanted")
      .repeatable();
  command.option("--trace", options.trace,
                 "Write a timeline of all ranks to this file (Chrome, ui.perfetto.dev)");
  command.option("--profile", options.profile,
                 "Write LibTorch's profile of rank 0's steps 4 to 6 to this file: operators, and a "
                 "GPU's kernels");
  command.flag("--fit", options.fit,
               "Choose layout and lanes (of a new job also batch.micro) by the memory that is "
               "there: memory.limit, else what the machine has left, or the ranks' devices have");
  command.flag("--trial", options.trial, {}).hidden();  // --fit starts these
  command.flag("--validate", options.validate,
               "With --evaluator 1: rank 0 validates as well, every train.validate_every steps");
  command.flag("--json", options.json, "Events as JSON lines on standard output");
  command.flag("--help-config", options.help_config, "List every key of the configuration");
  command.run([&] {
    check_options(command, options);
    options.job.ranks_given = command.given("--ranks");
    return train_command(options, command.program());
  });
}

}  // namespace trireme::inline v0::cli
