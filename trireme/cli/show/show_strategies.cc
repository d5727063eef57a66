// trireme show strategies: the strategies by the names that other systems have for them.
#include <cstdio>
#include <string>
#include <vector>

#include "trireme/cli/show/drawing.h"
#include "trireme/plan/named_strategies.h"
#include "trireme/show/strategies.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowStrategiesOptions {
  std::string name;
  int ranks = 0;
  DrawingOptions drawing;
};

int show_strategies(const ShowStrategiesOptions& options) {
  if (options.name.empty()) {
    check_list(options.drawing, "strategy");
    std::fputs(show::strategies_text().c_str(), stdout);
  } else {
    output(options.drawing, show::draw_strategy(options.name, options.ranks));
  }
  return 0;
}

}  // namespace

void declare_show_strategies(Command& command) {
  auto& options = command.keep<ShowStrategiesOptions>();
  command.about("Draw what a strategy holds where, and what moves in a step")
      .footer("Example:\n  trireme show strategies\n  trireme show strategies ZeRO3");
  std::vector<std::string> names;
  for (const plan::NamedStrategy& one : plan::named_strategies()) names.push_back(one.name);
  command.option("NAME", options.name, "Mirrored, FSDP, GPipe, ...; none: list").completes(names);
  command.option("--ranks", options.ranks, "How many ranks (default: 4, or the one it takes)")
      .at_least(0);
  add_drawing_options(command, options.drawing, "JSON lines: every process and movement", {},
                      "a picture", "a page that plays the movements");
  command.run([&options] { return show_strategies(options); });
}

}  // namespace trireme::inline v0::cli
