// trireme show: runs a collective on small numbers and draws what was recorded.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/command/command.h"
#include "trireme/command/files.h"
#include "trireme/command/names.h"
#include "trireme/command/option_checks.h"
#include "trireme/plan/link.h"
#include "trireme/show/collective.h"
#include "trireme/show/cost.h"
#include "trireme/show/json.h"
#include "trireme/show/picture.h"
#include "trireme/show/recording.h"
#include "trireme/show/text.h"

namespace trireme::inline v0::command {
namespace {

struct ShowOptions {
  std::string collective, algorithm;
  int ranks = 4, root = 0, hosts = 1;
  std::string link = "25us,1GB/s", bytes = "1MiB";
  std::string svg, html;
  bool step = false, json = false;
};

// Lists the collectives, or one collective's algorithms.
void list(const ShowOptions& options) {
  for (const comm::OpKind kind : show::drawn_kinds()) {
    if (!options.collective.empty() && kind != show::kind_named(options.collective)) continue;
    for (const auto* entry : comm::algorithms_of(kind)) {
      std::printf("%-15s %-16s %s\n", show::title_of(kind).c_str(), entry->name.c_str(),
                  entry->about.c_str());
    }
    if (kind == comm::OpKind::AllReduce) {
      std::printf("%-15s %-16s in shared memory\n", "all-reduce", "direct");
    }
  }
}

// Prints one table at a time; Enter shows the next.
void step_through(const show::Recording& recording) {
  std::string line;
  std::printf("%s\n", show::heading(recording).c_str());
  for (int step = 0; step <= recording.rounds(); ++step) {
    std::printf("%s\n", show::table(recording, step).c_str());
    if (step == recording.rounds()) return;
    std::printf("Enter: the next round ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return;
  }
}

int show_command(const ShowOptions& options) {
  if (options.algorithm.empty()) {
    list(options);
    return 0;
  }
  const plan::LinkCost link = plan::link_of(options.link);
  const std::size_t bytes = plan::bytes_of(options.bytes);
  const comm::OpKind kind = show::kind_named(options.collective);
  if (options.root != 0 && !show::has_root(kind)) {
    throw ConfigError(show::title_of(kind) + " has no root",
                      {.operation = "show", .advice = "Leave --root away."});
  }
  const show::Recording recording = show::record({.kind = kind,
                                                  .algorithm = options.algorithm,
                                                  .ranks = options.ranks,
                                                  .root = options.root,
                                                  .hosts = options.hosts});
  if (!options.svg.empty()) write_file(options.svg, show::svg_of(recording, link, bytes), "show");
  if (!options.html.empty())
    write_file(options.html, show::html_of(recording, link, bytes), "show");
  if (options.json) {
    std::fputs(show::json_of(recording, link, bytes).c_str(), stdout);
  } else if (options.step) {
    step_through(recording);
    std::fputs(show::footer(recording, link, bytes).c_str(), stdout);
  } else if (options.svg.empty() && options.html.empty()) {
    std::fputs(show::text_of(recording, link, bytes).c_str(), stdout);
  }
  return recording.faults().empty() ? 0 : static_cast<int>(ExitCode::UserCode);
}

}  // namespace

void add_show(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      app.add_subcommand("show", "Draw a collective as it was recorded, or a pipeline schedule");
  invocation.words[command->add_option("COLLECTIVE", options->collective,
                                       "all-reduce, broadcast, ...; none: list")] =
      collective_names();
  invocation.words[command->add_option("ALGORITHM", options->algorithm, "ring, ...; none: list")] =
      algorithm_names();
  command->add_option("--ranks", options->ranks, "How many ranks")->capture_default_str();
  command->add_option("--root", options->root, "Of a broadcast and its like")
      ->check(at_least(0))
      ->capture_default_str();
  command->add_option("--hosts", options->hosts, "On how many hosts the ranks lie")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--link", options->link, "For the time: latency, rate[, rate of additions]")
      ->capture_default_str();
  command->add_option("--bytes", options->bytes, "For the time: size of the whole buffer")
      ->capture_default_str();
  command->add_flag("--step", options->step, "Wait for Enter between the rounds");
  command->add_option("--svg", options->svg, "FILE: a picture of all rounds instead");
  command->add_option("--html", options->html, "FILE: a page that plays the rounds instead");
  command->add_flag("--json", options->json, "The recording as JSON lines");
  command->footer(
      "Example:\n  trireme show all-reduce ring --ranks 4\n  trireme show schedule 1f1b");
  add_show_schedule(*command, invocation);
  add_show_partition(*command, invocation);
  add_show_gossip(*command, invocation);
  add_show_tree_sum(*command, invocation);
  // Runs after a subcommand's own callback, which takes precedence.
  command->callback([options, command, &invocation] {
    if (!command->get_subcommands().empty()) return;
    invocation.action = [options] { return show_command(*options); };
  });
}

}  // namespace trireme::inline v0::command
