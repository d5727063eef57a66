// trireme show partition: a graph of measured blocks, cut into stages and drawn.
#include <cstdio>
#include <string>

#include "trireme/base/file.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/plan/link.h"
#include "trireme/plan/partition/graph_text.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_check.h"
#include "trireme/show/graph_picture.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowPartitionOptions {
  std::string file, memory, schedule, svg;
  int stages = 2, microbatches = 8;
  double slack = 0;
  bool json = false;
};

plan::PartitionOptions partition_options(const ShowPartitionOptions& options) {
  if (!(options.slack >= 0))
    refuse("show", "--slack " + number_text(options.slack) + " is no number of at least 0",
           "Write 0.05 for a stage 5 % longer.");
  plan::PartitionOptions result{.stages = options.stages, .slack = options.slack};
  if (!options.memory.empty())
    result.memory_limit = static_cast<std::int64_t>(plan::bytes_of(options.memory));
  if (options.schedule.empty()) return result;
  if (plan::schedule_named(options.schedule).chunks == plan::Chunks::Two) {
    refuse("show", options.schedule + " puts two stages on a rank",
           "Name one with one stage a rank.");
  }
  const int stages = options.stages;
  const auto peaks =
      plan::verify(plan::make_schedule(options.schedule, {stages, stages, options.microbatches}),
                   options.schedule);
  result.live = [peaks](int, int stage) {
    return peaks[static_cast<std::size_t>(stage)].activations;
  };
  return result;
}

int show_partition(const ShowPartitionOptions& options) {
  const plan::Graph graph = plan::parse_graph(
      read_file(options.file, "",
                {.operation = "show", .advice = "Name the file of a graph (docs/schedules.md)."}),
      options.file);
  const plan::GraphPartition partition = plan::partition_graph(graph, partition_options(options));
  if (!options.svg.empty()) write_file(options.svg, show::svg_of(graph, partition), "show");
  if (options.json) {
    std::fputs(show::json_of(graph, partition).c_str(), stdout);
  } else if (options.svg.empty()) {
    std::fputs(plan::text_of(partition, graph).c_str(), stdout);
  }
  return 0;
}

}  // namespace

void declare_show_partition(Command& command) {
  auto& options = command.keep<ShowPartitionOptions>();
  command.about("Cut a graph of measured blocks into stages")
      .footer(
          "Example:\n  trireme show partition gpt-nano.graph --stages 2\n"
          "That file is written by: trireme plan configs/gpt-nano.toml --graph gpt-nano.graph");
  command.option("FILE", options.file, "The graph: nodes with their costs, values").required();
  command.option("--stages", options.stages, "Into how many").at_least(1);
  command.option("--memory", options.memory, "Memory of a stage, at most: 8GB");
  const Option schedule =
      command.option("--schedule", options.schedule,
                     "By which stages keep activations: 1f1b (default: of one micro-batch)");
  command.option("--microbatches", options.microbatches, "Micro-batches of that schedule")
      .at_least(1)
      .needs(schedule);
  command
      .option("--slack", options.slack,
              "Share by which a stage may take longer where that saves traffic")
      .shows_default();
  command.option("--svg", options.svg, "FILE: a picture instead");
  command.flag("--json", options.json, "JSON lines");
  command.run([&options] { return show_partition(options); });
}

}  // namespace trireme::inline v0::cli
