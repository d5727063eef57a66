// One command of a program, with its options. CLI11 is behind it: only command.cc and program.cc
// include its headers.
//
//     void declare_gossip(Command& command) {
//       auto& options = command.keep<Options>();
//       command.about("Draw ranks that average").footer("Example:\n  trireme show gossip ring");
//       command.option("--ranks", options.ranks, "How many ranks").at_least(1);
//       command.run([&options] { return show_gossip(options); });
//     }
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/cli/help/described.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme::inline v0::cli {

class Command;
class Program;

/// An option or argument of a command. Each method returns the option itself.
class Option {
 public:
  Option& required();
  /// Accepts numbers from `least` on, or from `least` to `most`; no NaN.
  Option& at_least(double least);
  Option& between(double least, double most);
  /// Refuses an empty text, such as that of "$DATA" with an unset variable.
  Option& filled();
  /// Accepts only these words, which completion offers; the error names the nearest.
  Option& one_of(std::vector<std::string> words);
  /// Completion offers these words; others are accepted.
  Option& completes(std::vector<std::string> words);
  /// Help shows the present value as the default, also if it is empty, 0 or negative.
  Option& shows_default();
  Option& hides_default();
  /// From `least` to `most` values; with a `delimiter`, they may also be in one word.
  Option& values(int least, int most, char delimiter = '\0');
  /// A list that grows by one value each time the option is given.
  Option& repeatable();
  Option& needs(const Option& other);
  /// Help does not list it.
  Option& hidden();

 private:
  friend class Command;
  Option(CLI::Option* option, Command& command) : option_(option), command_(command) {}
  Option& in_range(double least, double most, const std::string& range);
  CLI::Option* option_;
  Command& command_;
};

/// Owned by its Program. Its actions may keep references to it.
class Command {
 public:
  Command(const Command&) = delete;
  Command& about(const std::string& text);
  /// Shown at the end of help. Examples are written for `trireme`; help has the program's name.
  Command& footer(std::string text);
  /// `names`: "-n,--ranks", or "RUN" for an argument. T: std::string, a number, or a vector of one.
  /// Help shows the present value as the default, unless it is empty, 0 or negative.
  template <class T>
  Option option(const std::string& names, T& value, const std::string& about);
  Option flag(const std::string& names, bool& value, const std::string& about);
  /// True if the command line has the option.
  bool given(const std::string& option) const;
  /// The first of `options` that the command line has; empty: none.
  std::string first_given(std::initializer_list<const char*> options) const;
  /// Runs the command; returns the exit code. Without it, a subcommand must be named.
  void run(std::function<int()> action) { action_ = std::move(action); }
  /// The message for an argument that the command does not know; empty: the usual message.
  void unexpected(std::function<std::string(const std::string& argument)> message) {
    unexpected_ = std::move(message);
  }
  /// Help and completion do not list it.
  Command& hidden();
  /// Another program runs the command: it takes any arguments and has no action.
  void hand_over();
  /// Hides the command; with any arguments it ends with "NAME " + `why` and exit code 2.
  void refuse(const std::string& why, const std::string& advice);

  /// A new value that lives as long as the command, for options to write to.
  template <class T>
  T& keep() {
    auto kept = std::make_shared<T>();
    kept_.push_back(kept);
    return *kept;
  }
  Program& program() const noexcept { return program_; }

 private:
  friend class Option;
  friend class Program;
  Command(Program& program, CLI::App* app) : program_(program), app_(app) {}
  Command& add(const std::string& name);
  Command* find(const CLI::App* app);
  void require_subcommands();
  DescribedCommand describe() const;
  DescribedOption describe(const CLI::Option& option) const;

  Program& program_;
  CLI::App* const app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::shared_ptr<void>> kept_;
  std::map<const CLI::Option*, std::vector<std::string>> words_;  // that completion offers
  std::function<int()> action_;
  bool handed_over_ = false;
  std::function<std::string(const std::string&)> unexpected_;
};

/// The number of ranks, under every name that launchers use; -np is accepted for -n everywhere.
inline constexpr const char* kRanksOption = "-n,--ranks,--np";
/// The most ranks, or servers, that a job may have.
inline constexpr int kMostProcesses = 65'536;
/// For commands that may start servers, too.
inline constexpr const char* kWorkersOption = "-n,--ranks,--np,--workers";

/// Prints a line for people: to standard output, or to standard error if --json uses the former.
void say(bool json, std::string_view text);

}  // namespace trireme::inline v0::cli
