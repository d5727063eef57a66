// A schedule's or graph's file may hold anything: it is read or refused. What was read is printed
// and read back equal; what the check accepts can be simulated, with transfers or without.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/plan/partition/graph_text.h"
#include "trireme/plan/schedule/pipeline_simulator.h"
#include "trireme/plan/schedule/schedule.h"
#include "trireme/plan/schedule/schedule_check.h"
#include "trireme/plan/schedule/schedule_transfers.h"

namespace {

void try_schedule(std::string_view text) {
  using namespace trireme::plan;
  const Schedule schedule = parse_schedule(text);
  if (parse_schedule(text_of(schedule)) != schedule) std::abort();
  if (!inspect(schedule).faults.empty()) return;
  const Schedule sent = with_transfers(schedule);
  if (!inspect(sent).faults.empty()) std::abort();
  if (simulate(sent, {}).end != simulate(schedule, {}).end) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    try_schedule(text);
  } catch (const trireme::ConfigError&) {
  }
  try {
    const trireme::plan::Graph graph = trireme::plan::parse_graph(text);
    if (graph.nodes.size() <= 12) trireme::plan::partition_graph(graph, {.stages = 2});
  } catch (const trireme::ConfigError&) {
  }
  return 0;
}
