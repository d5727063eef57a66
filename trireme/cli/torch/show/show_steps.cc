// trireme show overlap | zero1 | tensor | context | expert: draws a step of simulated ranks.
#include <string>

#include "trireme/cli/show/drawing.h"
#include "trireme/cli/torch/show/recorded_steps.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowStepsOptions {
  int ranks = 2;
  DrawingOptions drawing;
};

void declare(Command& command, const std::string& name, const std::string& about,
             show::RecordedStep (*record)(int ranks)) {
  auto& options = command.keep<ShowStepsOptions>();
  command.about(about).footer("Example:\n  trireme show " + name + " --ranks 2");
  command.option("--ranks", options.ranks, "How many ranks");
  add_drawing_options(command, options.drawing, "JSON lines: tables, and every span with its time");
  command.run([&options, record] {
    output(options.drawing, record(options.ranks));
    return 0;
  });
}

}  // namespace

void declare_show_overlap(Command& command) {
  declare(command, "overlap", "Draw gradients that are reduced while backward still runs",
          record_overlap);
}

void declare_show_zero1(Command& command) {
  declare(command, "zero1", "Draw a step of ZeRO-1 and what each rank keeps", record_zero1);
}

void declare_show_tensor(Command& command) {
  declare(command, "tensor", "Draw layers that are cut among tensor-parallel ranks", record_tensor);
}

void declare_show_context(Command& command) {
  declare(command, "context", "Draw ring attention among context-parallel ranks", record_context);
}

void declare_show_expert(Command& command) {
  declare(command, "expert", "Draw tokens that travel to the ranks of their experts",
          record_expert);
}

}  // namespace trireme::inline v0::cli
