// trireme show gossip: ranks that average with their neighbours, as it was recorded.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "trireme/command/command.h"
#include "trireme/command/files.h"
#include "trireme/command/option_checks.h"
#include "trireme/plan/mixing.h"
#include "trireme/show/gossip.h"

namespace trireme::inline v0::command {
namespace {

struct ShowGossipOptions {
  show::GossipOptions gossip{.graph = ""};
  std::string svg, html;
  bool step = false, json = false;
};

void list(int ranks, std::uint64_t seed) {
  for (const std::string& graph : plan::mixing_graphs())
    std::printf("%s\n", plan::describe(plan::make_mixing(graph, ranks, seed)).c_str());
}

// Prints one round at a time; Enter shows the next.
void step_through(const show::GossipRecording& recording) {
  std::string line;
  std::printf("%s\n%s\n", show::name_of(recording).c_str(), recording.about.c_str());
  for (std::size_t round = 0; round < recording.rounds.size(); ++round) {
    std::printf("%s", show::round_text(recording, round).c_str());
    if (round + 1 == recording.rounds.size()) return;
    std::printf("Enter: the next round ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return;
  }
}

int show_gossip(const ShowGossipOptions& options) {
  if (options.gossip.graph.empty()) {
    list(options.gossip.ranks, options.gossip.seed);
    return 0;
  }
  const show::GossipRecording recording = show::record_gossip(options.gossip);
  if (!options.svg.empty()) write_file(options.svg, show::svg_of(recording), "show");
  if (!options.html.empty()) write_file(options.html, show::html_of(recording), "show");
  if (options.json) {
    std::fputs(show::json_of(recording).c_str(), stdout);
  } else if (options.step) {
    step_through(recording);
  } else if (options.svg.empty() && options.html.empty()) {
    std::fputs(show::text_of(recording).c_str(), stdout);
  }
  return 0;
}

}  // namespace

void add_show_gossip(CLI::App& show, Invocation& invocation) {
  auto options = std::make_shared<ShowGossipOptions>();
  CLI::App* command =
      show.add_subcommand("gossip", "Draw ranks that average with their neighbours alone");
  invocation.words[command->add_option("GRAPH", options->gossip.graph,
                                       "ring, exponential, one_peer or random; none: list")] =
      plan::mixing_graphs();
  command->add_option("--ranks", options->gossip.ranks, "How many ranks")->capture_default_str();
  command
      ->add_option("--rounds", options->gossip.rounds,
                   "How many (default: periods until all are near the mean)")
      ->check(at_least(0));
  command->add_option("--seed", options->gossip.seed, "Of a random graph")->capture_default_str();
  command->add_flag("--step", options->step, "Wait for Enter between the rounds");
  command->add_option("--svg", options->svg, "FILE: a picture instead");
  command->add_option("--html", options->html, "FILE: a page that plays it instead");
  command->add_flag("--json", options->json, "JSON lines: every round's messages and values");
  command->footer("Example:\n  trireme show gossip one_peer --ranks 8");
  command->callback(
      [options, &invocation] { invocation.action = [options] { return show_gossip(*options); }; });
}

}  // namespace trireme::inline v0::command
