#include "trireme/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/command.h"
#include "trireme/cli/start_ranks.h"
#include "trireme/train/trainer.h"

namespace trireme {
inline namespace v0 {
namespace cli {
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
  std::string command = "trireme";
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  std::fprintf(stderr, "error: %s. `%s --help` shows what there is.\n", text.c_str(),
               command.c_str());
  return static_cast<int>(ExitCode::Usage);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Trireme trains neural networks on many processors.", "trireme");
  app.require_subcommand(1);
  app.set_version_flag("--version", "trireme 0.1.0");
  app.footer("Start here:\n  trireme train configs/gpt-nano.toml --ranks 2");
  Invocation invocation{.argc = argc, .argv = argv};
  for (auto* add :
       {add_train, add_plan, add_generate, add_eval, add_inspect, add_doctor, add_launch}) {
    add(app, invocation);
  }
  try {
    std::vector<std::string> arguments = arguments_of(argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return invocation.action();
}

}  // namespace

void say(bool json, std::string_view text) {
  std::fprintf(json ? stderr : stdout, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(json ? stderr : stdout);
}

int run(int argc, char** argv) {
  // A rank that train started: its Job reports whatever is thrown, so nothing is caught here.
  if (const char* spec = std::getenv(kWorkerVariable)) {
    return train::run_training(argc, argv, train::WorkerSpec::from_text(spec));
  }
  try {
    return parse_and_run(argc, argv);
  } catch (...) {
    const ErrorReport report = describe(std::current_exception());
    std::fprintf(stderr, "error: %s\n", report.sentence.c_str());
    return report.exit_code;
  }
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
