#include "trireme/show/strategies.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/joined.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

using plan::NamedStrategy;

// "weights whole; ..." of ranks and servers.
std::string places_of(const NamedStrategy& strategy) {
  if (strategy.servers == 0) return plan::describe(strategy.rank);
  return "workers: " + plan::describe(strategy.rank) +
         (strategy.servers == 1 ? "; the server: " : "; servers: ") +
         plan::describe(strategy.server);
}

std::string moves_of(const NamedStrategy& strategy) {
  return strategy.moves.empty() ? "nothing" : joined(strategy.moves, &plan::Movement::what, "; ");
}

std::string share_text(plan::Share share, int index, int of) {
  if (share == plan::Share::Whole) return "whole";
  if (share == plan::Share::None) return "-";
  return (share == plan::Share::Slice ? "slice " : "layers ") + std::to_string(index + 1) + "/" +
         std::to_string(of);
}

struct Process {
  std::string name;
  std::array<std::string, 3> holds;  // weights, gradients, optimizer state
};

std::array<std::string, 3> holds_of(const plan::Holding& holding, int index, int of) {
  return {share_text(holding.weights, index, of), share_text(holding.gradients, index, of),
          share_text(holding.optimizer, index, of)};
}

std::vector<Process> processes_of(const StrategyDrawing& drawing) {
  const NamedStrategy& strategy = drawing.strategy;
  std::vector<Process> all;
  for (int i = 0; i < strategy.servers; ++i)
    all.push_back({"server " + std::to_string(i), holds_of(strategy.server, i, strategy.servers)});
  const int of = strategy.cut_within_host ? drawing.ranks / strategy.hosts : drawing.ranks;
  for (int i = 0; i < drawing.ranks; ++i)
    all.push_back({(strategy.servers > 0 ? "worker " : "rank ") + std::to_string(i),
                   holds_of(strategy.rank, i % of, of)});
  return all;
}

}  // namespace

StrategyDrawing draw_strategy(const std::string& name, int ranks) {
  const NamedStrategy& strategy = plan::find_strategy(name);
  if (ranks == 0) ranks = strategy.most_ranks == 1 ? 1 : 4;
  check_range("ranks", ranks, 1, 8);
  plan::check_ranks(strategy, ranks, 1);
  require(ranks % strategy.hosts == 0,
          std::to_string(ranks) + " ranks on " + std::to_string(strategy.hosts) + " hosts",
          "Draw a multiple of " + std::to_string(strategy.hosts) + " ranks.");
  return {strategy, ranks};
}

std::string training_command(const NamedStrategy& strategy) {
  return std::string("trireme train configs/gpt-nano.toml --ranks ") +
         (strategy.most_ranks == 1 ? "1" : "2") + " --set parallel.strategy=" + strategy.name;
}

std::string strategies_text() {
  std::string text;
  for (const NamedStrategy& one : plan::named_strategies()) {
    text += line_of(padded(one.name, 20) + one.about + ".");
    text += line_of(padded("", 20) + "also:  " + joined(one.others));
    text += line_of(padded("", 20) + "where: " + places_of(one));
    text += line_of(padded("", 20) + "moves: " + moves_of(one));
    text += line_of(padded("", 20) + "keys:  " + plan::describe_keys(one) +
                    (one.missing.empty() ? "" : " (not in this build)"));
  }
  return text;
}

std::string strategies_markdown() {
  std::string text = "| name | other names | what is where | what moves in a step | keys |\n";
  text += "|---|---|---|---|---|\n";
  for (const NamedStrategy& one : plan::named_strategies())
    text += "| " + one.name + " | " + joined(one.others) + " | " + places_of(one) + " | " +
            moves_of(one) + " | `" + plan::describe_keys(one) + "` |\n";
  return text;
}

std::string text_of(const StrategyDrawing& drawing) {
  const NamedStrategy& strategy = drawing.strategy;
  std::string text = strategy.name + ": " + strategy.about + ".\n";
  if (!strategy.others.empty()) text += "Other names: " + joined(strategy.others) + ".\n";
  if (!strategy.missing.empty())
    text += "Not in this build: " + strategy.missing + ". " + strategy.advice + "\n";
  text +=
      "\n" + padded("", 12) + padded("weights", 14) + padded("gradients", 14) + "optimizer state\n";
  for (const Process& one : processes_of(drawing))
    text += line_of(padded(one.name, 12) + padded(one.holds[0], 14) + padded(one.holds[1], 14) +
                    one.holds[2]);
  text += strategy.same_batch ? "\nAll ranks compute the same micro-batches. In a step:\n"
                              : "\nEach rank computes micro-batches of its own. In a step:\n";
  int number = 0;
  for (const plan::Movement& move : strategy.moves)
    text += "  " + std::to_string(++number) + ". " + std::string(plan::describe(move.between)) +
            ": " + move.what + "\n";
  if (number == 0) text += "  nothing moves between ranks\n";
  text += "\nparallel.strategy = \"" + strategy.name + "\" means " + plan::describe_keys(strategy) +
          "\n";
  return strategy.missing.empty() ? text + "Try it: " + training_command(strategy) + "\n" : text;
}

std::string json_of(const StrategyDrawing& drawing) {
  const NamedStrategy& strategy = drawing.strategy;
  std::string text = json_line({{"event", "show"},
                                {"strategy", strategy.name},
                                {"others", strategy.others},
                                {"about", strategy.about},
                                {"keys", plan::describe_keys(strategy)},
                                {"missing", strategy.missing}});
  for (const Process& one : processes_of(drawing))
    text += json_line({{"event", "process"},
                       {"name", one.name},
                       {"weights", one.holds[0]},
                       {"gradients", one.holds[1]},
                       {"optimizer", one.holds[2]}});
  for (const plan::Movement& move : strategy.moves)
    text += json_line(
        {{"event", "move"}, {"between", plan::describe(move.between)}, {"what", move.what}});
  return text;
}

}  // namespace trireme::inline v0::show
