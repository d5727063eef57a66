// `trireme show strategies`: the named strategies (plan/named_strategies.h) as a table, and one of
// them as a drawing: a box for each rank and server with its tensors, and a lane for each movement
// in a step. Pure functions.
#pragma once

#include <string>

#include "trireme/plan/named_strategies.h"

namespace trireme::inline v0::show {

struct StrategyDrawing {
  plan::NamedStrategy strategy;
  int ranks = 4;  // workers, where there are servers
};

/// `ranks`: 1 to 8 and a multiple of the strategy's hosts, else ConfigError; 0: 4, or 1 if the
/// strategy takes no more.
StrategyDrawing draw_strategy(const std::string& name, int ranks);

/// Five lines for each strategy: name, other names, what is where, what moves, keys.
std::string strategies_text();
/// The same as a table in Markdown.
std::string strategies_markdown();

/// The command that trains a small model, which comes with Trireme, by this strategy.
std::string training_command(const plan::NamedStrategy& strategy);

std::string text_of(const StrategyDrawing& drawing);
/// {"event": "show", ...}, one {"event": "process", ...} each, one {"event": "move", ...} each.
std::string json_of(const StrategyDrawing& drawing);
std::string svg_of(const StrategyDrawing& drawing);
/// A page that shows what is held, then each movement.
std::string html_of(const StrategyDrawing& drawing);

}  // namespace trireme::inline v0::show
