// trireme bench comm: how long collectives take here, per size; and the table that `auto` goes by.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/choice/choice.h"
#include "trireme/comm/choice/measure.h"
#include "trireme/comm/choice/tune.h"
#include "trireme/command/command.h"
#include "trireme/job/job.h"
#include "trireme/launch/environment.h"
#include "trireme/launch/launch.h"
#include "trireme/plan/link.h"

namespace trireme {
inline namespace v0 {
namespace command {
namespace {

// Set for the ranks that this command starts.
constexpr const char* kRankVariable = "TRIREME_BENCH_RANK";

struct Options {
  std::vector<std::string> collectives = {"all-reduce"};
  std::vector<std::string> sizes;
  int ranks = 2;
  std::string transport = "auto", algorithm = "auto";
  bool heap = false, explain = false, json = false, tune = false;
  std::string out;  // of --tune
  double seconds = 0.05;
};

// "all-reduce" and "all_reduce" are the same.
comm::OpKind kind_of(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return comm::measurable_kind(name);
}

// "Intel(R) Xeon(R) Processor, 2 cores"; the processor is left out where the system does not say.
std::string machine_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string text, line;
  while (text.empty() && std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) text = line.substr(colon + 2) + ", ";
  }
  return text + std::to_string(std::thread::hardware_concurrency()) + " cores";
}

std::string text_of(std::size_t bytes) {
  for (const auto& [unit, word] : {std::pair(std::size_t{1} << 20, "MiB"), {1u << 10, "KiB"}}) {
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + " " + word;
  }
  return std::to_string(bytes) + " B";
}

std::string text_of_time(double seconds) {
  char text[32];
  const bool small = seconds < 1e-3;
  std::snprintf(text, sizeof text, small ? "%.2f us" : "%.2f ms", seconds * (small ? 1e6 : 1e3));
  return text;
}

void print(const comm::Communicator& world, std::string_view collective,
           const std::vector<comm::Measured>& figures, const Options& options) {
  if (!options.json) {
    std::printf("%.*s, %d ranks, %s, %s, f32 in %s memory\n%12s %12s %10s\n",
                static_cast<int>(collective.size()), collective.data(), world.size(),
                std::string(world.transport_name()).c_str(), options.algorithm.c_str(),
                options.heap ? "ordinary" : "arena", "bytes", "time", "GB/s");
  }
  for (const comm::Measured& one : figures) {
    const double rate = one.seconds > 0 ? double(one.bytes) / one.seconds / 1e9 : 0;
    if (!options.json) {
      std::printf("%12s %12s %10.3f\n", text_of(one.bytes).c_str(),
                  text_of_time(one.seconds).c_str(), rate);
      continue;
    }
    const nlohmann::json line = {{"event", "bench"},
                                 {"collective", collective},
                                 {"ranks", world.size()},
                                 {"transport", world.transport_name()},
                                 {"algorithm", options.algorithm},
                                 {"arena", !options.heap},
                                 {"bytes", one.bytes},
                                 {"seconds", one.seconds},
                                 {"gigabytes_per_second", rate}};
    std::printf("%s\n", line.dump().c_str());
  }
  std::fflush(stdout);
}

void explain(const comm::Communicator& world, const std::vector<std::size_t>& sizes,
             const Options& options) {
  for (const std::size_t bytes : sizes) {
    const std::string why = world.explain_all_reduce(bytes);
    if (options.json) {
      const nlohmann::json line = {{"event", "choice"}, {"bytes", bytes}, {"why", why}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%12s  %s\n", text_of(bytes).c_str(), why.c_str());
    }
  }
}

// The table keeps what was measured before with other rank counts and transports.
void write_tuning(const plan::Tuning& measured, const std::string& path) {
  const auto before = comm::parse_tuning(comm::read_tuning_file());
  plan::Tuning table = before ? *before : plan::Tuning();
  table.machine = machine_text();
  for (const auto& [transport, link] : measured.links) table.links[transport] = link;
  for (const plan::Measurement& one : measured.measurements()) table.add(one);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  std::ofstream file(path);
  if (!(file << table.to_toml()) || !file.flush()) {
    throw ResourceError("cannot write " + path,
                        {.operation = "bench", .advice = "Name another file: --out FILE."});
  }
}

void tune(Job& job, const Options& options) {
  comm::TuneOptions how;
  how.progress = [](std::string_view text) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  };
  const plan::Tuning measured = comm::tune(job.world(), how);
  const std::string path = options.out.empty() ? plan::tuning_path() : options.out;
  if (job.rank() != 0) return;
  if (path.empty()) {
    throw ConfigError("there is no place for the table: neither HOME nor TRIREME_TUNING is set",
                      {.operation = "bench", .advice = "Name a file: --out FILE."});
  }
  write_tuning(measured, path);
  say(options.json, "written: " + path);
}

int run_rank(const Invocation& invocation, const Options& options) {
  Job job(invocation.argc, invocation.argv,
          {.transport = options.transport, .algorithm = options.algorithm});
  comm::Communicator& world = job.world();
  if (options.tune) {
    tune(job, options);
    return 0;
  }
  std::vector<std::size_t> sizes;
  for (const std::string& size : options.sizes) sizes.push_back(plan::bytes_of(size));
  if (sizes.empty()) sizes = comm::usual_sizes(128u << 20);
  if (options.explain) {
    if (job.rank() == 0) explain(world, sizes, options);
    world.barrier().wait();
    return 0;
  }
  for (const std::string& collective : options.collectives) {
    const comm::OpKind kind = kind_of(collective);
    const auto figures = comm::measure(
        world, {.kind = kind, .sizes = sizes, .arena = !options.heap, .seconds = options.seconds});
    if (job.rank() == 0) print(world, comm::name_of(kind), figures, options);
  }
  world.barrier().wait();
  return 0;
}

int bench_comm(const Invocation& invocation, const Options& options) {
  for (const std::string& collective : options.collectives) {
    kind_of(collective);  // before anything starts
  }
  const bool started = launch::process_environment(kRankVariable).has_value() ||
                       launch::resolve_environment().size > 1;
  if (started || options.ranks == 1) return run_rank(invocation, options);
  launch::LaunchOptions launch;
  launch.ranks = options.ranks;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  launch.command.insert(launch.command.end(), invocation.argv + 1,
                        invocation.argv + invocation.argc);
  launch.environment = {std::string(kRankVariable) + "=1"};
  launch.rank0_direct = true;
  return launch::run(launch);
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  CLI::App* command = bench->add_subcommand("comm", "Latency and bandwidth of collectives");
  command->add_option("COLLECTIVE", options->collectives, "all-reduce, broadcast, ...")
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "Processes to start; under a launcher: all of it")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--transport", options->transport, "shm, tcp, ...")->capture_default_str();
  command->add_option("--algorithm", options->algorithm, "Of all-reduce")->capture_default_str();
  command->add_option("--sizes", options->sizes,
                      "For example 8B 64KiB 16MiB; default: 8 B to 128 MiB");
  command->add_option("--seconds", options->seconds, "Spent on each size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--heap", options->heap, "Ordinary memory instead of arenas");
  command->add_flag("--tune", options->tune,
                    "Measure every all-reduce and write the table for auto");
  command->add_option("--out", options->out, "FILE for that table; default: where auto looks");
  command->add_flag("--explain", options->explain,
                    "Which algorithm auto takes at each size, and why");
  command->add_flag("--json", options->json, "JSON lines");
  bench->footer("Example:\n  trireme bench comm all-reduce --ranks 2 --sizes 8B 1MiB");
  command->footer("Example:\n  trireme bench comm all-reduce --ranks 2 --sizes 8B 1MiB");
  command->callback([options, &invocation] {
    invocation.action = [options, &invocation] { return bench_comm(invocation, *options); };
  });
}

}  // namespace command
}  // namespace v0
}  // namespace trireme
