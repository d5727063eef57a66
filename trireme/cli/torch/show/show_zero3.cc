// trireme show zero3: draws a step of ZeRO-3 recorded on simulated ranks.
#include <string>
#include <vector>

#include "trireme/cli/show/drawing.h"
#include "trireme/cli/torch/show/record_zero3.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowZero3Options {
  Zero3Options zero3;
  DrawingOptions drawing;
};

int show_zero3(const ShowZero3Options& options) {
  const show::Zero3Recording recording = record_zero3(options.zero3);
  output(options.drawing, recording);
  if (options.drawing.steps()) {
    // Rank 0's grid, with one more moment each time.
    std::vector<std::string> grids;
    for (std::size_t until = 1; until <= recording.moments[0].size(); ++until)
      grids.push_back(show::grid(recording, 0, until));
    step_through(show::heading(recording), grids, "moment");
  }
  return 0;
}

}  // namespace

void declare_show_zero3(Command& command) {
  auto& options = command.keep<ShowZero3Options>();
  command.about("Draw what ZeRO-3 gathers, frees and sends in a step")
      .footer("Example:\n  trireme show zero3 --ranks 4 --blocks 4");
  command.option("--ranks", options.zero3.ranks, "How many ranks");
  command.option("--blocks", options.zero3.blocks, "Blocks of the model");
  command.option("--microbatches", options.zero3.rounds, "Micro-batches of each rank");
  add_drawing_options(command, options.drawing, "JSON lines: every rank's moments", "moment",
                      "a picture of all ranks");
  command.run([&options] { return show_zero3(options); });
}

}  // namespace trireme::inline v0::cli
