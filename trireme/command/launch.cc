// trireme launch: starts N ranks of any program on this host.
#include "trireme/launch/launch.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "trireme/command/command.h"
#include "trireme/command/option_checks.h"

namespace trireme::inline v0::command {
namespace {

struct CommandOptions {
  launch::LaunchOptions launch;
  int only_rank = -1;
  std::string bind = "core";
};

int launch_command(CommandOptions options) {
  if (options.only_rank >= 0) options.launch.only_rank = options.only_rank;
  options.launch.bind = options.bind == "core"   ? launch::Bind::Core
                        : options.bind == "numa" ? launch::Bind::Numa
                                                 : launch::Bind::None;
  return launch::run(options.launch);
}

}  // namespace

void add_launch(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<CommandOptions>();
  CLI::App* command = app.add_subcommand("launch", "Start N ranks of any program on this host");
  command->add_option(kRanksOption, options->launch.ranks, "Processes to start")
      ->required()
      ->check(between(1, 65'536));
  command->add_option("--log-dir", options->launch.log_dir, "Folder: one rank-K.log per rank");
  command->add_option("--only-rank", options->only_rank, "Print this rank's lines only")
      ->check(at_least(0));
  const std::vector<std::string> binds = {"core", "numa", "none"};
  invocation.words[command->add_option("--bind", options->bind, "Cores that a rank may run on")
                       ->check(one_of(binds))
                       ->capture_default_str()] = binds;
  command->add_option("PROGRAM", options->launch.command, "-- program and its arguments")
      ->required();
  command->footer("Example:\n  trireme launch -n 2 -- echo hello");
  // "launch -n 2 b/mnist --epochs 3": --epochs belongs to the program.
  invocation.unexpected[command] = [options, &invocation](const std::string& argument) {
    if (options->launch.command.empty()) return std::string();
    return argument +
           " is no option of launch. Write -- before the program and its own options: `" +
           invocation.program() + " launch -n " + std::to_string(options->launch.ranks) + " -- " +
           options->launch.command.front() + " " + argument + "`";
  };
  command->callback([options, &invocation] {
    invocation.action = [options] { return launch_command(*options); };
  });
}

}  // namespace trireme::inline v0::command
