// trireme show overlap | zero1 | tensor | context | expert: draws a step of simulated ranks.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "trireme/cli/command.h"
#include "trireme/cli/recorded_steps.h"
#include "trireme/command/files.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowStepsOptions {
  int ranks = 2;
  std::string svg, html;
  bool json = false;
};

using Record = show::RecordedStep (*)(int ranks);

int show_step(Record record, const ShowStepsOptions& options) {
  const show::RecordedStep step = record(options.ranks);
  if (!options.svg.empty()) command::write_file(options.svg, show::svg_of(step), "show");
  if (!options.html.empty()) command::write_file(options.html, show::html_of(step), "show");
  if (options.json) {
    std::fputs(show::json_of(step).c_str(), stdout);
  } else if (options.svg.empty() && options.html.empty()) {
    std::fputs(show::text_of(step).c_str(), stdout);
  }
  return 0;
}

void add(CLI::App& show, Invocation& invocation, const std::string& name, const std::string& about,
         Record record) {
  auto options = std::make_shared<ShowStepsOptions>();
  CLI::App* command = show.add_subcommand(name, about);
  command->add_option("--ranks", options->ranks, "How many ranks")->capture_default_str();
  command->add_option("--svg", options->svg, "FILE: a picture instead");
  command->add_option("--html", options->html, "FILE: a page that plays it instead");
  command->add_flag("--json", options->json, "JSON lines: tables, and every span with its time");
  command->footer("Example:\n  trireme show " + name + " --ranks 2");
  command->callback([options, record, &invocation] {
    invocation.action = [options, record] { return show_step(record, *options); };
  });
}

}  // namespace

void add_show_steps(CLI::App& app, Invocation& invocation) {
  CLI::App& show = *app.get_subcommand("show");
  add(show, invocation, "overlap", "Draw gradients that are reduced while backward still runs",
      record_overlap);
  add(show, invocation, "zero1", "Draw a step of ZeRO-1 and what each rank keeps", record_zero1);
  add(show, invocation, "tensor", "Draw layers that are cut among tensor-parallel ranks",
      record_tensor);
  add(show, invocation, "context", "Draw ring attention among context-parallel ranks",
      record_context);
  add(show, invocation, "expert", "Draw tokens that travel to the ranks of their experts",
      record_expert);
}

}  // namespace trireme::inline v0::cli
