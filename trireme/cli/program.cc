#include "trireme/cli/program.h"

#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/end_by_signal.h"
#include "trireme/base/error.h"
#include "trireme/base/nearest.h"
#include "trireme/base/standard_streams.h"

namespace trireme::inline v0::cli {
namespace {

// Like MPI's launchers, commands accept -np for -n; CLI11 would read it as -n p. "help train"
// becomes "train --help".
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(1, argc), argv + argc);
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  }
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "-np") argument = "-n";
  }
  return arguments;
}

std::vector<const CLI::App*> visible_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

std::string without_dashes(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

// The message for an unknown argument, with a suggestion. `line`: the part that is known.
std::string unknown_argument(const CLI::App& command, const std::string& line,
                             const std::string& argument) {
  std::vector<std::string> candidates;
  const bool option = argument.starts_with('-');
  if (option) {
    for (const CLI::Option* one : command.get_options())
      for (const std::string& name : one->get_lnames()) candidates.push_back(name);
  } else {
    for (const CLI::App* one : visible_commands(command)) candidates.push_back(one->get_name());
  }
  const std::string name = argument.substr(0, argument.find('='));
  const std::string meant = nearest(option ? without_dashes(name) : name, candidates);
  if (!option && candidates.empty()) return line + " does not take " + argument;
  return line + " has no " + (option ? "option " : "command ") + argument +
         (meant.empty() ? "" : "; did you mean " + (option ? "--" + meant : meant) + "?");
}

// Without a command, prints a short list of commands.
int overview(const CLI::App& app, const std::string& line) {
  std::string text = app.get_description() + "\n\n";
  std::size_t wide = 0;
  for (const CLI::App* one : visible_commands(app)) wide = std::max(wide, one->get_name().size());
  for (const CLI::App* one : visible_commands(app)) {
    std::string name = one->get_name();
    name.resize(wide, ' ');
    text += "  " + line + " " + name + "  " + one->get_description() + "\n";
  }
  if (app.get_parent() == nullptr) text += "\n" + app.get_footer() + "\n";
  std::fprintf(stderr, "%s\n`%s COMMAND --help` says what a command takes.\n", text.c_str(),
               line.c_str());
  return static_cast<int>(ExitCode::Usage);
}

// Prints a usage error as one sentence and a hint to the help, instead of CLI11's page.
// `own`: the message of a command for its unknown argument; empty: the usual one.
int usage_error(
    const CLI::App& app, const CLI::ParseError& error,
    const std::function<std::string(const CLI::App& command, const std::string& argument)>& own) {
  // The command that got the unknown argument, else the last command named.
  const CLI::App* command = &app;
  std::string line = app.get_name();
  while (command->remaining().empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    line += " " + command->get_name();
  }
  std::vector<std::string> unknown = command->remaining();
  std::erase(unknown, "--");
  const bool incomplete = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  std::string text = error.what();
  if (!unknown.empty() && (incomplete || extra)) {
    text = own(*command, unknown.front());
    if (text.empty()) text = unknown_argument(*command, line, unknown.front());
  } else if (incomplete && command->get_require_subcommand_min() > 0) {
    return overview(*command, line);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  std::fprintf(stderr, "error: %s%s `%s --help` shows what there is.\n", text.c_str(),
               text.ends_with('?') ? "" : ".", line.c_str());
  return static_cast<int>(ExitCode::Usage);
}

// Throws ResourceError if printed text could not be written, for example to a full disk. A pipe or
// socket whose reader has ended is not an error.
void flush_output() {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0) return;
  throw ResourceError("writing to standard output failed: a part of the text is missing",
                      {.operation = "output", .advice = "Free some space on its disk."});
}

}  // namespace

int print_error(const std::exception_ptr& error) {
  const ErrorReport report = describe(error);
  std::fprintf(stderr, "error: %s\n", report.sentence.c_str());
  return report.exit_code;
}

Program::Program(int argc, char** argv, const std::string& name, const std::string& about,
                 const std::string& footer)
    : argc_(argc),
      argv_(argv),
      name_(name),
      app_(std::make_unique<CLI::App>(about, name)),
      root_(*this, app_.get()) {
  app_->require_subcommand(1);  // before any is added: each inherits the limit of one
  app_->set_version_flag("--version", "trireme 0.1.0");
  root_.footer(footer);
}

Program::~Program() = default;

Command& Program::add(const std::string& words) {
  const std::size_t blank = words.find(' ');
  if (blank == words.npos) return root_.add(words);
  return root_.find(app_->get_subcommand(words.substr(0, blank)))->add(words.substr(blank + 1));
}

// The action of the named command. Throws CLI11's errors.
std::function<int()> Program::parsed() {
  root_.require_subcommands();
  std::vector<std::string> arguments = arguments_of(argc_, argv_);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse order
  app_->parse(std::move(arguments));
  const CLI::App* named = app_.get();
  while (!named->get_subcommands().empty()) named = named->get_subcommands().back();
  return root_.find(named)->action_;
}

Program::Parsed Program::parse() {
  const auto own = [this](const CLI::App& app, const std::string& argument) {
    const Command* const command = root_.find(&app);
    return command->unexpected_ ? command->unexpected_(argument) : std::string();
  };
  try {
    return {0, parsed()};
  } catch (const CLI::Success& success) {
    // The list of commands is no answer to "help xyzzy".
    if (app_->get_subcommands().empty() && !app_->remaining().empty())
      return {usage_error(*app_, CLI::ExtrasError(app_->remaining()), own), {}};
    return {app_->exit(success), {}};
  } catch (const CLI::ParseError& error) {
    return {usage_error(*app_, error, own), {}};
  }
}

int Program::guarded(const std::function<int()>& action) const {
  try {
    const int code = action();
    if (code == 0) flush_output();
    return code;
  } catch (...) {
    return print_error(std::current_exception());
  }
}

int Program::run() {
  open_standard_streams();
  let_signals_end_process_1();
  return guarded([this] {
    const Parsed parsed = parse();
    return parsed.action ? parsed.action() : parsed.code;
  });
}

std::optional<int> Program::run_if_right() {
  open_standard_streams();
  let_signals_end_process_1();
  std::function<int()> action;
  try {
    action = parsed();
  } catch (const CLI::Error&) {
    return std::nullopt;
  }
  if (!action) return std::nullopt;
  return guarded(action);
}

}  // namespace trireme::inline v0::cli
