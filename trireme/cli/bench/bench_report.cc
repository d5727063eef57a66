#include "trireme/cli/bench/bench_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/words.h"

namespace trireme::inline v0::cli {
namespace {

double rate_of(const comm::Measured& one) {
  return one.seconds > 0 ? double(one.bytes) / one.seconds / 1e9 : 0;
}

// With NCCL, transport_name() is the transport of the CPU's memory.
std::string transport_of(const comm::Communicator& world, const BenchReport& report) {
  return report.memory == "GPU" ? "nccl" : std::string(world.transport_name());
}

void print_json(const comm::Communicator& world, std::string_view collective,
                const comm::Measured& one, const BenchReport& report) {
  nlohmann::json line = {{"event", "bench"},
                         {"collective", collective},
                         {"ranks", world.size()},
                         {"transport", transport_of(world, report)},
                         {"algorithm", report.algorithm},
                         {"memory", report.memory},
                         {"bytes", one.bytes},
                         {"seconds", one.seconds},
                         {"gigabytes_per_second", rate_of(one)}};
  if (!report.link.empty()) line["link"] = report.link;
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

void print_figures(const comm::Communicator& world, std::string_view collective,
                   const std::vector<comm::Measured>& figures, const BenchReport& report) {
  if (!report.json) {
    const std::string link = report.link.empty() ? "" : " of " + report.link;
    std::printf("%.*s, %d rank%s, %s%s, %s, f32 in %s memory\n%12s %12s %10s\n",
                static_cast<int>(collective.size()), collective.data(), world.size(),
                world.size() == 1 ? "" : "s", transport_of(world, report).c_str(), link.c_str(),
                report.algorithm.c_str(), report.memory.c_str(), "bytes", "time", "GB/s");
  }
  for (const comm::Measured& one : figures) {
    if (report.json) {
      print_json(world, collective, one, report);
    } else {
      std::printf("%12s %12s %10.3f\n", size_text(one.bytes).c_str(),
                  duration_text(one.seconds).c_str(), rate_of(one));
    }
  }
  std::fflush(stdout);
}

void print_choices(const comm::Communicator& world, const std::vector<std::size_t>& sizes,
                   const BenchReport& report) {
  for (const std::size_t bytes : sizes) {
    const std::string why = world.explain_all_reduce(bytes);
    if (report.json) {
      const nlohmann::json line = {{"event", "choice"}, {"bytes", bytes}, {"why", why}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%12s  %s\n", size_text(bytes).c_str(), why.c_str());
    }
  }
  std::fflush(stdout);
}

}  // namespace trireme::inline v0::cli
