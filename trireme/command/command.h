// What the subcommands share: how one registers itself and says what to run. Those of this folder
// need no LibTorch; cli/ adds the others.
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

namespace trireme {
inline namespace v0 {
namespace command {

/// How the program was called; a command sets `action`, which returns the exit code.
struct Invocation {
  int argc = 0;
  char** argv = nullptr;
  std::function<int()> action;
  /// What an option takes, for completion, where it is no file: its words.
  std::map<const CLI::Option*, std::vector<std::string>> words;
  /// Of a command: what to say of an argument that it does not know; empty: the usual.
  std::map<const CLI::App*, std::function<std::string(const std::string& argument)>> unexpected;
  /// What the user typed for the program, for lines that say what to type next.
  std::string program() const { return argc > 0 ? argv[0] : "trireme"; }
};

/// How many ranks, under every name that launchers give it; -np is taken for -n everywhere.
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

/// Parses the command line and runs the command that it names. Errors end as one sentence on
/// standard error and the exit code of DESIGN 7 (2 for wrong usage). `name`: the program's, in
/// help, whose examples are written for `trireme`.
int run(int argc, char** argv, const std::string& name, const std::string& about,
        const std::string& footer, std::span<const AddCommand> commands);

/// The whole program where there is no LibTorch: commands(), and a sentence for those that need it.
int run_without_libtorch(int argc, char** argv);

/// A command of API.md that this program lacks: not in help, and whatever its arguments are, it
/// ends with "NAME " + `why` and exit code 2.
void add_absent(CLI::App& app, Invocation& invocation, const std::string& name,
                const std::string& why, const std::string& advice);

/// A line for people: standard output, or standard error where --json owns the former.
void say(bool json, std::string_view text);

}  // namespace command
}  // namespace v0
}  // namespace trireme
