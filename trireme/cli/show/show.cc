// trireme show: runs a collective on small numbers and draws what was recorded.
#include <cstdio>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/cli/show/drawing.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/plan/link.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/recording.h"
#include "trireme/show/drawing/picture.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowOptions {
  std::string collective, algorithm;
  int ranks = 4, root = 0, hosts = 1;
  std::string link = "25us,1GB/s", bytes = "1MiB";
  DrawingOptions drawing;
};

// Lists the collectives, or one collective's algorithms.
void list(const ShowOptions& options) {
  for (const comm::OpKind kind : show::drawn_kinds()) {
    if (!options.collective.empty() && kind != show::kind_named(options.collective)) continue;
    for (const auto* entry : comm::algorithms_of(kind)) {
      std::printf("%-15s %-16s %s\n", show::title_of(kind).c_str(), entry->name.c_str(),
                  entry->about.c_str());
    }
    if (kind == comm::OpKind::AllReduce)
      std::printf("%-15s %-16s in shared memory\n", "all-reduce", "direct");
  }
}

int show_command(const ShowOptions& options) {
  if (options.algorithm.empty()) {
    check_list(options.drawing, "algorithm");
    list(options);
    return 0;
  }
  const plan::LinkCost link = plan::link_of(options.link);
  const std::size_t bytes = plan::bytes_of(options.bytes);
  const comm::OpKind kind = show::kind_named(options.collective);
  if (options.root != 0 && !show::has_root(kind))
    refuse("show", show::title_of(kind) + " has no root", "Leave out --root.");
  const show::Recording recording = show::record({.kind = kind,
                                                  .algorithm = options.algorithm,
                                                  .ranks = options.ranks,
                                                  .root = options.root,
                                                  .hosts = options.hosts});
  output(options.drawing, recording, link, bytes);
  if (options.drawing.steps()) {
    std::vector<std::string> tables;
    for (int step = 0; step <= recording.rounds(); ++step)
      tables.push_back(show::table(recording, step) + "\n");
    step_through(show::heading(recording), tables, "round");
    std::fputs(show::footer(recording, link, bytes).c_str(), stdout);
  }
  return recording.faults().empty() ? 0 : static_cast<int>(ExitCode::UserCode);
}

}  // namespace

void declare_show(Command& command) {
  auto& options = command.keep<ShowOptions>();
  command.about("Draw a collective as it was recorded, or a pipeline schedule")
      .footer("Example:\n  trireme show all-reduce ring --ranks 4\n  trireme show schedule 1f1b");
  command.option("COLLECTIVE", options.collective, "all-reduce, broadcast, ...; none: list")
      .completes(show::collective_names());
  command.option("ALGORITHM", options.algorithm, "ring, ...; none: list")
      .completes(show::algorithm_names());
  command.option("--ranks", options.ranks, "How many ranks");
  command.option("--root", options.root, "Root of a broadcast and its like")
      .at_least(0)
      .shows_default();
  command.option("--hosts", options.hosts, "On how many hosts the ranks lie").at_least(1);
  command.option("--link", options.link, "For the time: latency, rate[, rate of additions]");
  command.option("--bytes", options.bytes, "For the time: size of the whole buffer");
  add_drawing_options(command, options.drawing, "The recording as JSON lines", "round",
                      "a picture of all rounds", "a page that plays the rounds");
  command.run([&options] { return show_command(options); });
}

}  // namespace trireme::inline v0::cli
