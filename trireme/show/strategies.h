// `trireme show strategies`: what a strategy that is known by name (plan/named_strategies.h) does, as
// a table of all and as a drawing of one: a box for each rank and server with what it holds, and one
// lane for each thing that moves in a step. Drawn from that table. Pure functions.
#pragma once

#include <string>

#include "trireme/plan/named_strategies.h"

namespace trireme::inline v0::show {

struct StrategyDrawing {
  plan::NamedStrategy strategy;
  int ranks = 4;  // workers, where there are servers
};

/// ConfigError unless 1 to 8 ranks, a multiple of the strategy's hosts. 0 ranks: as many as show it.
StrategyDrawing draw_strategy(const std::string& name, int ranks);

/// One line for each strategy: name, what is where, what moves, keys.
std::string strategies_text();
/// The same as a table of Markdown, with the names in other systems.
std::string strategies_markdown();

/// Trains a small model that comes with Trireme by it.
std::string training_command(const plan::NamedStrategy& strategy);

std::string text_of(const StrategyDrawing& drawing);
/// {"event": "show", ...}, one {"event": "process", ...} each, one {"event": "move", ...} each.
std::string json_of(const StrategyDrawing& drawing);
std::string svg_of(const StrategyDrawing& drawing);
/// A page that shows what is held, then each movement.
std::string html_of(const StrategyDrawing& drawing);

}  // namespace trireme::inline v0::show
