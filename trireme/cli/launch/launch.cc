// trireme launch: starts N ranks of any program, on this host or on several; and the two commands
// that it starts itself.
#include "trireme/launch/launch.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/launch/own_run.h"
#include "trireme/cli/launch/sbatch.h"
#include "trireme/cli/launch/shared_options.h"
#include "trireme/cli/light.h"
#include "trireme/cli/program.h"
#include "trireme/job/options.h"
#include "trireme/launch/coordinator/coordinator_messages.h"
#include "trireme/launch/hosts/host_messages.h"

namespace trireme::inline v0::cli {
namespace {

struct CommandOptions {
  launch::LaunchOptions launch;
  HostArguments hosts;
  std::string elastic;
  int spares = 0, restarts = -1, multiple = 1, stages = 1;
  int only_rank = -1, evaluators = 0, nodes = 1;
  std::string bind = "core", print_sbatch, time = "12:00:00";
};

int print_script(const CommandOptions& options, const Command& command) {
  const std::string other = command.first_given(
      {"--host", "--hostfile", "--host-timeout", "--export", "--servers", "--evaluator",
       "--elastic", "--spares", "--restarts", "--store", "--multiple", "--stages", "--log-dir",
       "--only-rank", "--bind", "PROGRAM"});
  if (!other.empty())
    refuse("launch", "--print-sbatch cannot be combined with " + other,
           "The script trains CONFIG by srun, on a number of ranks that stays and the nodes that "
           "Slurm gives. Leave it out, or write `trireme launch` into a script of your own.");
  const std::filesystem::path config = options.print_sbatch;
  std::error_code error;
  if (!std::filesystem::is_regular_file(config, error))
    refuse("launch", "the configuration " + config.string() + " is no file",
           "Name one, such as configs/gpt-nano.toml.");
  const std::string name = config.stem().string();
  const std::string script =
      sbatch_script({.name = name,
                     .command = {own_program(), "train", config.string(), "--out", "runs/" + name,
                                 "--resume", "auto"},
                     .ranks = options.launch.ranks,
                     .nodes = options.nodes,
                     .time = options.time});
  std::fputs(script.c_str(), stdout);
  return 0;
}

int launch_command(CommandOptions options, const Command& command) {
  if (!options.print_sbatch.empty()) return print_script(options, command);
  const bool ranks_given = command.given("--ranks");
  if (options.launch.command.empty())
    refuse("launch", "no program was given", "Write it after --: trireme launch -n 2 -- ./program");
  options.launch.elsewhere = host_options(options.hosts);
  if (!ranks_given && options.hosts.empty())
    refuse("launch", "the number of ranks is not given", "Give -n N, or hosts with -H.");
  if (!ranks_given) options.launch.ranks = launch::slots_of(options.launch.elsewhere.hosts);
  options.launch.evaluator = options.evaluators == 1;
  const bool resizes = !options.elastic.empty() || options.spares > 0;
  if (options.launch.servers > 0 && !resizes) {
    // These are restarts of servers, and of workers that train on their own.
    if (options.restarts >= 0) options.launch.restarts = options.restarts;
  } else if (resizes || options.restarts > 0) {
    const int ranks = options.launch.ranks;
    const auto [min, max] =
        options.elastic.empty() ? std::pair(ranks, ranks) : parse_elastic(options.elastic);
    options.launch.elastic =
        launch::ElasticOptions{.min = min,
                               .max = max,
                               .multiple = options.multiple,
                               .stages = options.stages,
                               .spares = options.spares,
                               .silence = launch::silence_of(job::resolve_options({}).timeout)};
    if (options.restarts >= 0) options.launch.elastic->restarts = options.restarts;
  }
  if (!options.launch.elastic && (command.given("--multiple") || command.given("--stages")))
    refuse("launch", "--multiple or --stages in a job whose number of ranks stays",
           "Leave it out, or give --elastic MIN:MAX.");
  const int workers = options.launch.roles().workers;
  if (options.only_rank >= workers)
    refuse("launch",
           "--only-rank " + std::to_string(options.only_rank) + ", but there " +
               (workers == 1 ? "is " : "are ") + counted(workers, "rank"),
           "Give a number from 0 to " + std::to_string(workers - 1) + ".");
  if (options.only_rank >= 0) options.launch.only_rank = options.only_rank;
  options.launch.bind = options.bind == "core"   ? launch::Bind::Core
                        : options.bind == "numa" ? launch::Bind::Numa
                                                 : launch::Bind::None;
  options.launch.coordinator = coordinator_command();
  return launch::run(options.launch);
}

}  // namespace

void declare_launch(Command& command) {
  auto& options = command.keep<CommandOptions>();
  command.about("Start N ranks of any program, on this host or on several")
      .footer(
          "Example:\n  trireme launch -n 2 -- echo hello\n"
          "  trireme launch --workers 4 --servers 2 --evaluator 1 -- ./program\n"
          "On other hosts: trireme launch -H node07:4,node08:4 -- ./program. They are reached by "
          "ssh without\na password (TRIREME_SSH: another command) and have the same folder and the "
          "same Trireme.\n"
          "Under Slurm: trireme launch --print-sbatch gpt.toml -n 8 --nodes 2 > job.sh; sbatch "
          "job.sh");
  command
      .option(kWorkersOption, options.launch.ranks,
              "Ranks to start (with hosts: as many as they have slots)")
      .between(1, kMostProcesses)
      .hides_default();
  add_host_options(command, options.hosts);
  command.option("--servers", options.launch.servers, "Parameter servers to start as well")
      .between(0, kMostProcesses);
  command.option("--evaluator", options.evaluators, "1: start an evaluator as well").between(0, 1);
  add_elastic_options(command,
                      {options.elastic, options.spares, options.restarts, options.launch.store});
  add_copy_options(command, options.multiple, options.stages);
  command.option("--log-dir", options.launch.log_dir,
                 "Folder: one rank-K.log, server-K.log, evaluator.log per process");
  command.option("--only-rank", options.only_rank, "Print this rank's lines only").at_least(0);
  command.option("--bind", options.bind, "Cores that a rank may run on")
      .one_of({"core", "numa", "none"});
  const Option script = command.option(
      "--print-sbatch", options.print_sbatch,
      "CONFIG: start nothing, and print a batch script for Slurm that trains it, saves "
      "a checkpoint before the time limit and queues itself again");
  command.option("--nodes", options.nodes, "With --print-sbatch: nodes of the job")
      .between(1, kMostProcesses)
      .needs(script);
  command.option("--time", options.time, "With --print-sbatch: the time limit").needs(script);
  command.option("PROGRAM", options.launch.command, "-- program and its arguments");
  // "launch -n 2 b/mnist --epochs 3": --epochs belongs to the program.
  command.unexpected([&](const std::string& argument) {
    const launch::LaunchOptions& given = options.launch;
    if (given.command.empty()) return std::string();
    return argument +
           " is no option of launch. Write -- before the program and its own options: `" +
           command.program().typed() + " launch -n " + std::to_string(given.ranks) + " -- " +
           given.command.front() + " " + argument + "`";
  });
  command.run([&] { return launch_command(options, command); });
}

void declare_launch_host(Command& command) {
  command.about("The launcher's part on another host; ssh starts it").hidden();
  command.run([] { return launch::run_host_agent(); });
}

void declare_launch_coordinator(Command& command) {
  command.about("The launcher's coordinator; it starts it").hidden();
  command.run([] { return launch::run_coordinator_process(); });
}

}  // namespace trireme::inline v0::cli
