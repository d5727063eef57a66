// trireme show gossip: ranks that average with their neighbours, as it was recorded.
#include <cstdio>
#include <string>
#include <vector>

#include "trireme/cli/show/drawing.h"
#include "trireme/plan/mixing.h"
#include "trireme/show/collective/gossip.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowGossipOptions {
  show::GossipOptions gossip{.graph = ""};
  DrawingOptions drawing;
};

void list(int ranks, std::uint64_t seed) {
  for (const std::string& graph : plan::mixing_graphs())
    std::printf("%s\n", plan::describe(plan::make_mixing(graph, ranks, seed)).c_str());
}

int show_gossip(const ShowGossipOptions& options) {
  if (options.gossip.graph.empty()) {
    check_list(options.drawing, "graph");
    list(options.gossip.ranks, options.gossip.seed);
    return 0;
  }
  const show::GossipRecording recording = show::record_gossip(options.gossip);
  output(options.drawing, recording);
  if (options.drawing.steps()) {
    std::vector<std::string> rounds;
    for (std::size_t round = 0; round < recording.rounds.size(); ++round)
      rounds.push_back(show::round_text(recording, round));
    step_through(show::name_of(recording) + "\n" + recording.about, rounds, "round");
  }
  return 0;
}

}  // namespace

void declare_show_gossip(Command& command) {
  auto& options = command.keep<ShowGossipOptions>();
  command.about("Draw ranks that average with their neighbours alone")
      .footer("Example:\n  trireme show gossip one_peer --ranks 8");
  command.option("GRAPH", options.gossip.graph, "ring, exponential, one_peer or random; none: list")
      .completes(plan::mixing_graphs());
  command.option("--ranks", options.gossip.ranks, "How many ranks");
  command
      .option("--rounds", options.gossip.rounds,
              "How many (default: periods until all are near the mean)")
      .at_least(0);
  command.option("--seed", options.gossip.seed, "Seed of a random graph");
  add_drawing_options(command, options.drawing, "JSON lines: every round's messages and values",
                      "round");
  command.run([&options] { return show_gossip(options); });
}

}  // namespace trireme::inline v0::cli
