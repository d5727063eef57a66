// trireme bench comm: measures collectives per size and writes the table that `auto` uses.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/transports.h"
#include "trireme/base/words.h"
#include "trireme/cli/cluster.h"
#include "trireme/cli/files.h"
#include "trireme/cli/launch/own_run.h"
#include "trireme/cli/light.h"
#include "trireme/cli/program.h"
#include "trireme/comm/choice/choice.h"
#include "trireme/comm/choice/measure.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/choice/tune.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/comm/nccl/gpu_plan.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/job/job.h"
#include "trireme/launch/launch.h"
#include "trireme/observe/machine.h"
#include "trireme/plan/link.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/show/collective/collective.h"

namespace trireme::inline v0::cli {
namespace {

// Set in the environment of the ranks that this command starts.
constexpr const char* kRankVariable = "TRIREME_BENCH_RANK";

constexpr std::size_t kMost = 128u << 20;         // bytes, if no sizes are given
constexpr std::size_t kMostInProcess = 2u << 30;  // of all simulated ranks' buffers together

struct BenchOptions {
  std::string algorithm = "auto";
  std::string link;              // of a simulated network: "25us,1GB/s"
  std::string memory = "arena";  // or "ordinary", "GPU"
  std::vector<std::string> collectives = {"all-reduce"};
  std::vector<std::string> size_texts;
  std::vector<std::size_t> sizes;  // parsed from size_texts
  int ranks = 2;
  bool ranks_given = false;
  std::string transport = "auto";
  bool heap = false, explain = false, tune = false, json = false;
  std::string out;          // of --tune
  std::string beside_tune;  // the first option given that --tune has no use for
  double seconds = 0.05;
  bool on_gpus() const { return transport == "nccl"; }
};

double rate_of(const comm::Measured& one) {
  return one.seconds > 0 ? double(one.bytes) / one.seconds / 1e9 : 0;
}

// With NCCL, transport_name() is the transport of the CPU's memory.
std::string transport_of(const comm::Communicator& world, const BenchOptions& options) {
  return options.memory == "GPU" ? "nccl" : std::string(world.transport_name());
}

void print_json(const comm::Communicator& world, std::string_view collective,
                const comm::Measured& one, const BenchOptions& options) {
  nlohmann::json line = {{"event", "bench"},
                         {"collective", collective},
                         {"ranks", world.size()},
                         {"transport", transport_of(world, options)},
                         {"algorithm", options.algorithm},
                         {"memory", options.memory},
                         {"bytes", one.bytes},
                         {"seconds", one.seconds},
                         {"gigabytes_per_second", rate_of(one)}};
  if (!options.link.empty()) line["link"] = options.link;
  std::printf("%s\n", line.dump().c_str());
}

void print_figures(const comm::Communicator& world, std::string_view collective,
                   const std::vector<comm::Measured>& figures, const BenchOptions& options) {
  if (!options.json) {
    const std::string link = options.link.empty() ? "" : " of " + options.link;
    std::printf("%.*s, %d rank%s, %s%s, %s, f32 in %s memory\n%12s %12s %10s\n",
                static_cast<int>(collective.size()), collective.data(), world.size(),
                world.size() == 1 ? "" : "s", transport_of(world, options).c_str(), link.c_str(),
                options.algorithm.c_str(), options.memory.c_str(), "bytes", "time", "GB/s");
  }
  for (const comm::Measured& one : figures) {
    if (options.json) {
      print_json(world, collective, one, options);
    } else {
      std::printf("%12s %12s %10.3f\n", size_text(one.bytes).c_str(),
                  duration_text(one.seconds).c_str(), rate_of(one));
    }
  }
  std::fflush(stdout);
}

// The all-reduce algorithm that `auto` chooses at each size, and why.
void print_choices(const comm::Communicator& world, const BenchOptions& options) {
  for (const std::size_t bytes : options.sizes) {
    const std::string why = world.explain_all_reduce(bytes);
    if (options.json) {
      const nlohmann::json line = {{"event", "choice"}, {"bytes", bytes}, {"why", why}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%12s  %s\n", size_text(bytes).c_str(), why.c_str());
    }
  }
  std::fflush(stdout);
}

// Whether the MPI or NCCL decides the order of additions.
bool is_native(const std::string& algorithm) {
  return algorithm == comm::kMpiNative || algorithm == comm::nccl::kNative;
}

// Accepts "all-reduce" and "all_reduce".
comm::OpKind kind_of(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return comm::measurable_kind(name);
}

// Keeps earlier measurements of other rank counts and transports.
void write_tuning(const plan::Tuning& measured, const std::string& path) {
  const auto before = comm::parse_tuning(comm::read_tuning_file(path), path);
  plan::Tuning table = before ? *before : plan::Tuning();
  table.machine =
      observe::processor_name() + ", " + counted(std::thread::hardware_concurrency(), "core");
  for (const auto& [transport, link] : measured.links) table.links[transport] = link;
  for (const plan::Measurement& one : measured.measurements()) table.add(one);
  write_file(path, table.to_toml(), "bench");
}

std::string tuning_file(const BenchOptions& options) {
  const std::string path = options.out.empty() ? plan::tuning_path() : options.out;
  if (!path.empty()) return path;
  refuse("bench", "there is no place for the table: neither HOME nor TRIREME_TUNING is set",
         "Name a file: --out FILE.");
}

void tune(Job& job, const BenchOptions& options) {
  comm::TuneOptions how;
  how.progress = [](std::string_view text) { say(true, text); };
  const plan::Tuning measured = comm::tune(job.world(), how);
  if (job.rank() != 0) return;
  write_tuning(measured, tuning_file(options));
  say(options.json, "written: " + tuning_file(options));
}

void measure_all(comm::Communicator& world, const BenchOptions& options, Device device = {}) {
  if (options.explain) {
    if (world.rank() == 0) print_choices(world, options);
  } else {
    for (const std::string& collective : options.collectives) {
      const comm::OpKind kind = kind_of(collective);
      const bool chosen = options.algorithm != "auto";
      const auto figures = comm::measure(world, {.kind = kind,
                                                 .sizes = options.sizes,
                                                 .algorithm = chosen ? options.algorithm : "",
                                                 .arena = !options.heap,
                                                 .device = device,
                                                 .seconds = options.seconds});
      if (world.rank() == 0) print_figures(world, comm::name_of(kind), figures, options);
    }
  }
  world.barrier().wait();
}

int run_rank(const Program& program, const BenchOptions& options) {
  Job job(program.argc(), program.argv(),
          {.transport = options.transport, .reproducible = !is_native(options.algorithm)});
  if (options.tune) {
    tune(job, options);
  } else {
    measure_all(job.world(), options, job.device());
  }
  return 0;
}

// Runs all ranks in this process, over simulated cluster links on a virtual clock.
int run_simulated(const BenchOptions& options) {
  run_on_cluster(options.ranks, plan::link_of(options.link),
                 [&](const auto& transport, const auto& tuning) {
                   comm::Communicator world(transport, {.tuning = tuning});
                   measure_all(world, options);
                 });
  return 0;
}

// Refuses options that only apply to CPU memory.
void check_gpu_options(const BenchOptions& options) {
  const auto refuse_option = [](const std::string& what) {
    refuse("bench", what + " is for the CPU's memory, but transport nccl measures that of GPUs",
           "Leave it out, or take another transport.");
  };
  if (options.heap) refuse_option("--heap");
  if (options.tune) refuse_option("--tune");
  if (options.explain) refuse_option("--explain");
  if (options.algorithm != "auto" && options.algorithm != comm::nccl::kNative)
    refuse("bench", "on GPUs there is no algorithm " + options.algorithm,
           "Choose one of auto, " + std::string(comm::nccl::kNative) + ".");
}

void check_algorithm(comm::OpKind kind, const std::string& name) {
  const bool reduces = kind == comm::OpKind::AllReduce;
  const bool direct = reduces || comm::has_direct_form(kind);
  if (name == "auto" || (direct && name == "direct") || (reduces && name == comm::kMpiNative) ||
      comm::find_algorithm(kind, name))
    return;
  refuse("bench", std::string(comm::name_of(kind)) + " has no algorithm " + name,
         std::string("Choose one of auto, ") + (direct ? "direct, " : "") +
             (reduces ? "mpi-native, " : "") +
             joined(comm::algorithms_of(kind), &comm::AlgorithmEntry::name) + ".");
}

void check_transport(BenchOptions& options, const rendezvous::RankEnvironment& place) {
  if (!options.link.empty() && options.transport == "auto") options.transport = "sim";
  if (options.transport == "sim" && options.link.empty()) options.link = "25us,1GB/s";
  if (!options.link.empty()) {
    plan::link_of(options.link);
    if (options.transport != "sim") {
      refuse("bench", "--link is a simulated network's, but the transport is " + options.transport,
             "Leave out --link or --transport.");
    }
    if (place.size > 1) {
      refuse("bench",
             "transport sim runs all ranks in one process, but " + place.launcher + " started " +
                 std::to_string(place.size),
             "Start it without " + place.launcher + ".");
    }
    if (options.tune)
      refuse("bench", "--tune measures this machine, not a simulated network", "Leave out --link.");
    return;
  }
  const std::vector<std::string> names = transport_choices({"nccl", "sim"});
  if (std::find(names.begin(), names.end(), options.transport) == names.end())
    refuse("bench", "unknown transport '" + options.transport + "'", "Use " + one_of(names) + ".");
  if (options.transport == "mpi" && (place.launcher.empty() || place.meeting)) {
    refuse("bench", "transport mpi needs ranks that mpirun started",
           "Start it by mpirun, or use transport auto.");
  }
}

void read_sizes(BenchOptions& options) {
  for (const std::string& text : options.size_texts) {
    options.sizes.push_back(plan::bytes_of(text));
    if (options.sizes.back() == 0 || options.sizes.back() % sizeof(float) != 0) {
      refuse("bench", "\"" + text + "\" is not a multiple of 4 bytes, the size of one f32 element",
             "Give a multiple of 4 bytes.");
    }
  }
  if (!options.sizes.empty()) return;
  const auto ranks = static_cast<std::size_t>(options.ranks);
  options.sizes =
      comm::usual_sizes(options.link.empty() ? kMost : std::min(kMost, kMostInProcess / 2 / ranks));
}

// Refuses a path that cannot be written or holds no table. The table itself is written last.
void check_tuning_file(const BenchOptions& options) {
  const std::string path = tuning_file(options);
  comm::parse_tuning(comm::read_tuning_file(path), path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  if (!can_write(path)) refuse("bench", "cannot write " + path, "Name another file: --out FILE.");
}

// Refuses options without effect on what --tune or --explain does.
void check_task(const BenchOptions& options) {
  if (options.tune && !options.beside_tune.empty())
    refuse("bench", "--tune cannot be combined with " + options.beside_tune,
           "Leave it out: --tune measures every all-reduce, at sizes of its own.");
  if (!options.explain) return;
  for (const std::string& collective : options.collectives)
    if (kind_of(collective) != comm::OpKind::AllReduce)
      refuse("bench", "--explain is about all-reduce, not " + collective,
             "Leave out --explain or " + collective + ".");
  if (options.algorithm != "auto")
    refuse("bench", "--explain says what auto takes, not " + options.algorithm,
           "Leave out --algorithm.");
}

// Refuses everything that can be found wrong before anything starts.
void check(BenchOptions& options, const rendezvous::RankEnvironment& place) {
  const std::string who = place.launcher.empty() ? "the launcher" : place.launcher;
  if (place.size > 1 && options.ranks_given && options.ranks != place.size) {
    refuse("bench",
           "--ranks " + std::to_string(options.ranks) + ", but " + who + " started " +
               std::to_string(place.size) + " processes",
           "Leave out --ranks.");
  }
  check_transport(options, place);
  if (options.heap) options.memory = "ordinary";
  if (options.on_gpus()) options.memory = "GPU";
  if (options.on_gpus()) check_gpu_options(options);
  for (const std::string& collective : options.collectives) {
    const comm::OpKind kind = kind_of(collective);
    if (!options.on_gpus()) check_algorithm(kind, options.algorithm);
  }
  check_task(options);
  read_sizes(options);
  if (options.tune && place.rank == 0) check_tuning_file(options);  // rank 0 writes it
}

int bench_comm(const Program& program, BenchOptions options) {
  if (rendezvous::in_batch_script()) rendezvous::ignore_launchers();
  const rendezvous::RankEnvironment place = rendezvous::resolve_environment();
  try {
    check(options, place);
  } catch (...) {  // all processes fail alike: rank 0 reports it
    if (place.rank == 0) throw;
    return describe(std::current_exception()).exit_code;
  }
  if (!options.link.empty()) return run_simulated(options);
  const bool started = rendezvous::process_environment(kRankVariable).has_value() || place.size > 1;
  if (started || options.ranks == 1) return run_rank(program, options);
  launch::LaunchOptions launch;
  launch.ranks = options.ranks;
  launch.command = {this_executable()};
  launch.command.insert(launch.command.end(), program.argv() + 1, program.argv() + program.argc());
  launch.environment = {std::string(kRankVariable) + "=1"};
  launch.rank0_direct = true;
  return launch::run(launch);
}

}  // namespace

void declare_bench(Command& command) {
  command.about("Measure this machine")
      .footer("Example:\n  trireme bench comm all-reduce --ranks 2 --sizes 8B 1MiB");
}

void declare_bench_comm(Command& command) {
  auto& options = command.keep<BenchOptions>();
  command.about("Latency and bandwidth of collectives")
      .footer("Example:\n  trireme bench comm all-reduce --ranks 2 --sizes 8B 1MiB");
  command.option("COLLECTIVE", options.collectives, "all-reduce, broadcast, ...")
      .completes(show::collective_names());
  command.option(kRanksOption, options.ranks, "Processes to start; under a launcher: all of it")
      .between(1, 4096);
  const std::vector<std::string> transports = transport_choices({"nccl", "sim"});
  command.option("--transport", options.transport, one_of(transports) + "; nccl: GPUs' memory")
      .completes(transports);
  command.option("--link", options.link,
                 "A simulated network of such links: 25us,1GB/s (and --transport sim)");
  command.option("--algorithm", options.algorithm, "Default: its own choice")
      .completes(show::algorithm_names());
  command.option("--sizes", options.size_texts,
                 "For example 8B 64KiB 16MiB; default: 8 B to 128 MiB");
  command.option("--seconds", options.seconds, "Spent on each size").between(1e-6, 3600);
  command.flag("--heap", options.heap, "Ordinary memory instead of arenas");
  const Option tune =
      command.flag("--tune", options.tune, "Measure every all-reduce and write the table for auto");
  command.option("--out", options.out, "FILE for that table; default: where auto looks")
      .needs(tune);
  command.flag("--explain", options.explain, "Which algorithm auto takes at each size, and why");
  command.flag("--json", options.json, "JSON lines");
  command.run([&] {
    options.ranks_given = command.given("--ranks");
    options.beside_tune =
        command.first_given({"COLLECTIVE", "--sizes", "--algorithm", "--heap", "--explain"});
    return bench_comm(command.program(), options);
  });
}

}  // namespace trireme::inline v0::cli
