// What the files of this folder share: how a subcommand registers itself and says what to run.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace trireme {
inline namespace v0 {
namespace cli {

/// How the program was called; a command sets `action`, which returns the exit code.
struct Invocation {
  int argc = 0;
  char** argv = nullptr;
  std::function<int()> action;
  /// What the user typed for the program, for lines that say what to type next.
  std::string program() const { return argc > 0 ? argv[0] : "trireme"; }
};

void add_train(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_generate(CLI::App& app, Invocation& invocation);
void add_eval(CLI::App& app, Invocation& invocation);
void add_inspect(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
void add_launch(CLI::App& app, Invocation& invocation);

/// A line for people: standard output, or standard error where --json owns the former.
void say(bool json, std::string_view text);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
