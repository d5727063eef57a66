#include "trireme/cli/torch/exchange_curves.h"

#include <cstdio>

#include "trireme/base/file.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/bench/bench_scale.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/plan/link.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/show/collective/collective.h"

namespace trireme::inline v0::cli {
namespace {

struct BenchServerOptions {
  std::vector<int> workers = {1, 2, 4, 8, 16, 32, 64}, servers = {1, 2, 4}, measure;
  std::vector<std::string> all_reduces = {"ring", "halving_doubling"};
  std::string bytes = "1MiB", link = "25us,1GB/s", measured, svg;
  bool link_given = false, bytes_given = false, json = false;
};

std::vector<ExchangeWay> ways_of(const BenchServerOptions& options) {
  std::vector<ExchangeWay> ways;
  for (const int servers : options.servers) ways.push_back({.servers = servers});
  for (const std::string& name : options.all_reduces) {
    if (comm::find_algorithm(comm::OpKind::AllReduce, name) == nullptr)
      refuse("bench server", "all-reduce has no algorithm " + name,
             "`trireme show all-reduce` lists them.");
    ways.push_back({.all_reduce = name});
  }
  return ways;
}

// The link and the points of this machine.
ExchangeCurves measure_here(const BenchServerOptions& options, std::size_t bytes) {
  rendezvous::ignore_launchers();  // its runs are processes of this host
  OwnRuns runs("bench server");
  ExchangeCurves curves{.link = measured_link(bytes, runs), .bytes = bytes, .points = {}};
  for (const ExchangeWay& way : ways_of(options)) {
    for (const int workers : options.measure) {
      say(true, name_of(way) + ", " + counted(workers, "worker") + " ...");
      curves.points.push_back(
          {way, workers, "measured", measured_exchange(way, workers, bytes, runs)});
    }
  }
  return curves;
}

ExchangeCurves curves_of(const BenchServerOptions& options) {
  const std::size_t bytes = plan::bytes_of(options.bytes);
  if (bytes < 4 || bytes > 64u << 20)
    refuse("bench server", "--bytes " + size_text(bytes) + " is out of range",
           "Use 4 bytes to 64 MiB.");
  if (!options.measured.empty() && (options.bytes_given || !options.measure.empty()))
    refuse("bench server", "--measured cannot be combined with --bytes or --measure",
           "Leave those out: the file says what was measured.");
  ExchangeCurves curves{.link = plan::link_of(options.link), .bytes = bytes, .points = {}};
  if (!options.measured.empty())
    curves = ExchangeCurves::measured_in(
        read_file(
            options.measured, "",
            {.operation = "bench server",
             .advice = "Name a file that `trireme bench server --measure 1 2 4 --json` wrote."}),
        options.measured);
  else if (!options.measure.empty())
    curves = measure_here(options, bytes);
  if (options.link_given) curves.link = plan::link_of(options.link);
  if (!(curves.link.beta > 0))
    refuse("bench server", "the link has no rate", "Write --link 25us,1GB/s.");
  curves.add(ways_of(options), options.workers);
  return curves;
}

int bench_server(const BenchServerOptions& options) {
  if (!options.svg.empty()) check_can_write(options.svg, "bench server");
  const ExchangeCurves curves = curves_of(options);
  if (!options.svg.empty()) write_file(options.svg, curves.draw(), "bench server");
  std::fputs((options.json ? curves.to_json() : curves.to_text()).c_str(), stdout);
  return 0;
}

}  // namespace

void declare_bench_server(Command& command) {
  auto& options = command.keep<BenchServerOptions>();
  command.about("Parameter servers against all-reduce: the time of one exchange over workers")
      .footer("Example:\n  trireme bench server --workers 1 2 4 8 --servers 1 2 --bytes 64KiB");
  command.option("--workers", options.workers, "Counts to predict and to simulate").between(1, 64);
  command.option("--servers", options.servers, "Counts of servers").between(1, 16);
  command.option("--all-reduce", options.all_reduces, "Algorithms to compare with")
      .completes(show::registered_algorithms());
  command.option("--bytes", options.bytes, "Bytes of the gradients");
  command.option("--link", options.link, "Link of each worker and server: latency, rate");
  command
      .option("--measure", options.measure,
              "Counts of workers to run here over TCP, whose link the rest then has")
      .between(1, 16);
  command.option("--measured", options.measured,
                 "FILE: take what --measure --json wrote there instead of measuring");
  command.option("--svg", options.svg, "FILE for the curves");
  command.flag("--json", options.json, "JSON lines");
  command.run([&] {
    options.link_given = command.given("--link");
    options.bytes_given = command.given("--bytes");
    for (std::vector<int>* counts : {&options.workers, &options.servers, &options.measure})
      sort_once(*counts);
    return bench_server(options);
  });
}

}  // namespace trireme::inline v0::cli
