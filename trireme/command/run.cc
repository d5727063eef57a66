#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/command/command.h"
#include "trireme/command/parse.h"

namespace trireme {
inline namespace v0 {
namespace command {
namespace {

// As MPI's launchers do, `launch` takes -np for -n; CLI11 would read it as -n p.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(1, argc), argv + argc);
  if (arguments.empty() || arguments.front() != "launch") return arguments;
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "-np") argument = "-n";
  }
  return arguments;
}

// A usage error is one sentence and the way to the help, not CLI11's own page.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  std::fprintf(stderr, "error: %s. `%s --help` shows what there is.\n", text.c_str(),
               command.c_str());
  return static_cast<int>(ExitCode::Usage);
}

// The examples are written for `trireme`.
void rename_examples(CLI::App& app, const std::string& name) {
  const std::string own = "\n  trireme ";
  std::string text = app.get_footer();
  for (std::size_t at = 0; (at = text.find(own, at)) != std::string::npos; at += 3 + name.size())
    text.replace(at, own.size(), "\n  " + name + " ");
  app.footer(text);
  for (CLI::App* below : app.get_subcommands({})) rename_examples(*below, name);
}

}  // namespace

std::optional<int> parse(CLI::App& app, const Invocation& invocation) {
  try {
    std::vector<std::string> arguments = arguments_of(invocation.argc, invocation.argv);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return std::nullopt;
}

void say(bool json, std::string_view text) {
  std::fprintf(json ? stderr : stdout, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(json ? stderr : stdout);
}

int run(int argc, char** argv, const std::string& name, const std::string& about,
        const std::string& footer, std::span<const AddCommand> commands) {
  open_standard_streams();
  try {
    CLI::App app(about, name);
    app.require_subcommand(1);
    app.set_version_flag("--version", "trireme 0.1.0");
    app.footer(footer);
    Invocation invocation{.argc = argc, .argv = argv, .action = nullptr};
    for (const AddCommand& add : commands) add(app, invocation);
    rename_examples(app, name);
    if (const std::optional<int> code = parse(app, invocation)) return *code;
    return invocation.action();
  } catch (...) {
    const ErrorReport report = describe(std::current_exception());
    std::fprintf(stderr, "error: %s\n", report.sentence.c_str());
    return report.exit_code;
  }
}

}  // namespace command
}  // namespace v0
}  // namespace trireme
