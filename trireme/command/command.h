// Shared by the subcommands: how they register themselves, and the action to run. The commands of
// this folder need no LibTorch; cli/ adds the others.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme::inline v0::command {

/// How the program was called. A command sets `action`, which returns the exit code.
struct Invocation {
  int argc = 0;
  char** argv = nullptr;
  std::function<int()> action;
  /// For completion: the words that an option accepts, if it does not take a file.
  std::map<const CLI::Option*, std::vector<std::string>> words;
  /// The message for an argument that the command does not know; empty: the default message.
  std::map<const CLI::App*, std::function<std::string(const std::string& argument)>> unexpected;
  /// The program name that the user typed, for suggestions of what to type next.
  std::string program() const { return argc > 0 ? argv[0] : "trireme"; }
};

/// The number of ranks, under every name that launchers use; -np is accepted for -n everywhere.
inline constexpr const char* kRanksOption = "-n,--ranks,--np";

using AddCommand = std::function<void(CLI::App& app, Invocation& invocation)>;

void add_show(CLI::App& app, Invocation& invocation);
/// `show schedule`, `show partition`, `show gossip` and `show tree-sum`, below `show`.
void add_show_schedule(CLI::App& show, Invocation& invocation);
void add_show_partition(CLI::App& show, Invocation& invocation);
void add_show_gossip(CLI::App& show, Invocation& invocation);
void add_show_tree_sum(CLI::App& show, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_bench(CLI::App& app, Invocation& invocation);
/// `bench scale`, below `bench`.
void add_bench_scale(CLI::App& bench, Invocation& invocation);
void add_launch(CLI::App& app, Invocation& invocation);
void add_compare(CLI::App& app, Invocation& invocation);
void add_completion(CLI::App& app, Invocation& invocation);

/// Parses the command line and runs the command. An error ends as one sentence on standard error
/// and an exit code (docs/errors.md; 2 for wrong usage). `name` is the program's name in help,
/// whose examples are written for `trireme`.
int run(int argc, char** argv, const std::string& name, const std::string& about,
        const std::string& footer, std::span<const AddCommand> commands);

/// The whole program in a build without LibTorch: commands(), and a message for the others.
int run_without_libtorch(int argc, char** argv);

/// Adds a command of docs/api.md that this program lacks. It is not in help; with any arguments it
/// ends with "NAME " + `why` and exit code 2.
void add_absent(CLI::App& app, Invocation& invocation, const std::string& name,
                const std::string& why, const std::string& advice);

/// Prints a line for people: to standard output, or to standard error if --json uses the former.
void say(bool json, std::string_view text);

}  // namespace trireme::inline v0::command
