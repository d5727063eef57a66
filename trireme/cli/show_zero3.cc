// trireme show zero3: draws a step of ZeRO-3 recorded on simulated ranks.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "trireme/cli/command.h"
#include "trireme/cli/zero3_recording.h"
#include "trireme/command/files.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowZero3Options {
  Zero3Options zero3;
  std::string svg, html;
  bool step = false, json = false;
};

// Prints rank 0's grid, with one more moment after each Enter.
void step_through(const Zero3Recording& recording) {
  std::string line;
  std::printf("%s\n", heading(recording).c_str());
  const std::size_t moments = recording.moments[0].size();
  for (std::size_t until = 1; until <= moments; ++until) {
    std::printf("%s", grid(recording, 0, until).c_str());
    if (until == moments) return;
    std::printf("Enter: the next moment ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return;
  }
}

int show_zero3(const ShowZero3Options& options) {
  const Zero3Recording recording = record_zero3(options.zero3);
  if (!options.svg.empty()) command::write_file(options.svg, svg_of(recording), "show");
  if (!options.html.empty()) command::write_file(options.html, html_of(recording), "show");
  if (options.json) {
    std::fputs(json_of(recording).c_str(), stdout);
  } else if (options.step) {
    step_through(recording);
  } else if (options.svg.empty() && options.html.empty()) {
    std::fputs(text_of(recording).c_str(), stdout);
  }
  return 0;
}

}  // namespace

void add_show_zero3(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ShowZero3Options>();
  CLI::App* command = app.get_subcommand("show")->add_subcommand(
      "zero3", "Draw what ZeRO-3 gathers, frees and sends in a step");
  command->add_option("--ranks", options->zero3.ranks, "How many ranks")->capture_default_str();
  command->add_option("--blocks", options->zero3.blocks, "Of the model")->capture_default_str();
  command->add_option("--microbatches", options->zero3.rounds, "Of each rank")
      ->capture_default_str();
  command->add_flag("--step", options->step, "Wait for Enter between the moments");
  command->add_option("--svg", options->svg, "FILE: a picture of all ranks instead");
  command->add_option("--html", options->html, "FILE: a page that plays it instead");
  command->add_flag("--json", options->json, "JSON lines: every rank's moments");
  command->footer("Example:\n  trireme show zero3 --ranks 4 --blocks 4");
  command->callback(
      [options, &invocation] { invocation.action = [options] { return show_zero3(*options); }; });
}

}  // namespace trireme::inline v0::cli
