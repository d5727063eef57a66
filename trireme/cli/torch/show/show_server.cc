// trireme show server: workers and parameter servers at work on a simulated network; or, for a
// configuration, which server has which part of its model.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/cli/show/drawing.h"
#include "trireme/cli/torch/show/record_server.h"
#include "trireme/cli/torch/show/served_layout.h"
#include "trireme/plan/link.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowServerOptions {
  ServerRunOptions run;
  std::vector<std::string> slow;
  std::string compute = "10ms", link = "50us,200MB/s", bytes = "256KiB";
  std::string config;
  std::vector<std::string> set;
  bool servers_given = false;
  DrawingOptions drawing;
};

// "3:5": worker 3 takes 5 times as long.
std::pair<int, double> slow_of(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto worker = parse_number<int>(text.substr(0, colon));
  const auto times = parse_number<double>(text.substr(std::min(colon + 1, text.size())));
  if (worker && times) return {*worker, *times};
  refuse("show", "\"" + text + "\" is no slow worker",
         "Write its number and how many times as long its steps take: 3:5.");
}

int show_layout(const ShowServerOptions& options, const Command& command) {
  const std::string other =
      command.first_given({"--workers", "--staleness", "--backup", "--slow", "--steps", "--compute",
                           "--vary", "--bytes", "--link", "--seed", "--step"});
  if (!other.empty())
    refuse("show", other + " is for a run of workers and servers, and CONFIG draws none",
           "Leave out one of them.");
  const config::Config config = train::read_config(
      options.config, [](const char* name) { return static_cast<const char*>(std::getenv(name)); },
      options.set);
  const auto count = static_cast<int>(config.integer("server.count"));
  output(options.drawing, served_layout(train::Settings(config),
                                        std::filesystem::path(options.config).stem().string(),
                                        options.servers_given ? options.run.servers : count));
  return 0;
}

int show_server(const ShowServerOptions& options, const Command& command) {
  if (!options.config.empty()) return show_layout(options, command);
  ServerRunOptions run = options.run;
  for (const std::string& one : options.slow) run.slow.insert(slow_of(one));
  run.compute = Duration(static_cast<Duration::rep>(1e9 * plan::seconds_of(options.compute)));
  run.link = plan::link_of(options.link);
  run.bytes = plan::bytes_of(options.bytes);
  const show::ServerRun recorded = record_server(run);
  output(options.drawing, recorded);
  if (options.drawing.steps()) {
    std::vector<std::string> texts = show::moment_texts(recorded);
    for (std::string& text : texts) text += "\n";
    step_through(recorded.name + "\n" + recorded.about, texts, "moment");
  }
  return 0;
}

}  // namespace

void declare_show_server(Command& command) {
  auto& options = command.keep<ShowServerOptions>();
  command.about("Draw workers and parameter servers: who pushes, how late, who waits")
      .footer(
          "Example:\n  trireme show server --workers 4 --servers 2 --staleness 2 --slow 3:5\n"
          "  trireme show server configs/gpt-nano.toml --servers 2");
  ServerRunOptions& run = options.run;
  const Option config =
      command.option("CONFIG", options.config,
                     "A configuration (TOML): draw instead which server has what of its model");
  command.option("--set", options.set, "A key of CONFIG: key=value, as often as wanted")
      .repeatable()
      .needs(config);
  command.option("--workers", run.workers, "How many");
  command.option("--servers", run.servers, "How many share the parameters").between(1, 256);
  command.option("--staleness", *run.server.staleness,
                 "0: synchronous; s: at most s steps ahead of the slowest; -1: nobody waits");
  command
      .option("--backup", run.server.backup,
              "Synchronous: workers whose gradients a step does without")
      .shows_default();
  command
      .option("--slow", options.slow, "WORKER:TIMES, as often as wanted: 3:5 takes 5 times as long")
      .repeatable();
  command.option("--steps", run.steps, "How long to draw: steps of a worker that never waits");
  command.option("--compute", options.compute, "What a step takes a worker");
  command.option("--vary", run.vary, "How much more or less a step may take");
  command.option("--bytes", options.bytes, "Bytes of the model");
  command.option("--link", options.link, "Link of each worker and server: latency, rate");
  command.option("--seed", run.seed, "Seed of the steps' durations");
  add_drawing_options(command, options.drawing,
                      "JSON lines: steps, pushes and updates with their times", "moment");
  command.run([&] {
    options.servers_given = command.given("--servers");
    return show_server(options, command);
  });
}

}  // namespace trireme::inline v0::cli
