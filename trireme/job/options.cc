#include "trireme/job/options.h"

#include <algorithm>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/transports.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::job {
namespace {

void take_seconds(const rendezvous::Getenv& get, const char* name, Duration standard,
                  Duration& value) {
  const auto text = get(name);
  if (!text || text->empty() || value != standard) return;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (*end != '\0' || !(seconds > 0) || seconds > 1e9) {
    throw ConfigError(
        std::string(name) + "=" + *text + " is not a number of seconds",
        {.operation = "config", .advice = "For example: " + std::string(name) + "=30"});
  }
  value = std::max(from_seconds(seconds), Duration(1));  // a fraction of a nanosecond is not 0
}

void take_text(const rendezvous::Getenv& get, const char* name, const std::string& standard,
               std::string& value) {
  const auto text = get(name);
  if (text && !text->empty() && value == standard) value = *text;
}

constexpr int kMostSockets = 64;
constexpr int kMostCores = 1 << 16;

void take_sockets(const rendezvous::Getenv& get, int& value) {
  const auto text = get("TRIREME_COMM_SOCKETS");
  std::string given = std::to_string(value);
  if (text && !text->empty() && value == JobOptions().sockets) {
    given = *text;
    value = parse_number<int>(given).value_or(0);
  }
  if (value >= 1 && value <= kMostSockets) return;
  throw ConfigError(
      "'" + given + "' is no number of sockets from 1 to " + std::to_string(kMostSockets),
      {.operation = "config",
       .label = "comm.sockets",
       .advice = "For example: TRIREME_COMM_SOCKETS=2"});
}

void take_rate(const rendezvous::Getenv& get, std::int64_t& value) {
  const auto text = get("TRIREME_COMM_RATE");
  std::string given = std::to_string(value);
  if (text && !text->empty() && value == JobOptions().rate) {
    given = *text;
    char* end = nullptr;
    const double rate = std::strtod(given.c_str(), &end);
    value = *end == '\0' && rate >= 0 && rate <= 1e15 ? static_cast<std::int64_t>(rate) : -1;
  }
  if (value >= 0) return;
  throw ConfigError("'" + given + "' is no number of bytes a second",
                    {.operation = "config",
                     .label = "comm.rate",
                     .advice = "For example: TRIREME_COMM_RATE=1e9"});
}

// True if mpirun has bound each rank to its own cores; otherwise the ranks share all cores.
bool bound(const observe::Cores& cores) { return cores.affinity < cores.online; }

}  // namespace

JobOptions resolve_options(JobOptions options, const rendezvous::Getenv& get) {
  const JobOptions standard;
  take_text(get, "TRIREME_COMM_TRANSPORT", standard.transport, options.transport);
  take_text(get, "TRIREME_COMM_ALGORITHM", standard.algorithm, options.algorithm);
  take_text(get, "TRIREME_COMM_INTERFACE", standard.interface, options.interface);
  take_seconds(get, "TRIREME_TIMEOUT", standard.timeout, options.timeout);
  take_seconds(get, "TRIREME_TIMEOUT_USER_CODE", standard.timeout_user_code,
               options.timeout_user_code);
  take_sockets(get, options.sockets);
  take_rate(get, options.rate);
  const std::vector<std::string> known = transport_choices({"nccl"});
  if (std::find(known.begin(), known.end(), options.transport) == known.end()) {
    throw ConfigError(
        "unknown transport '" + options.transport + "'",
        {.operation = "config", .label = "comm.transport", .advice = "Use " + one_of(known) + "."});
  }
  return options;
}

bool share_cores(const rendezvous::RankEnvironment& rank) {
  if (rank.launcher.empty()) return rank.shared_cores;
  const observe::Cores cores = observe::usable_cores();
  return rank.local_size > (bound(cores) ? cores.online : cores.usable);
}

int resolve_cores(const rendezvous::RankEnvironment& rank, const rendezvous::Getenv& get) {
  if (const auto text = get("OMP_NUM_THREADS")) {
    const long threads = std::strtol(text->c_str(), nullptr, 10);
    if (threads > kMostCores)
      throw ConfigError(
          "OMP_NUM_THREADS=" + *text + " is no number of threads",
          {.operation = "join", .advice = "It may be at most " + std::to_string(kMostCores) + "."});
    if (threads > 0) return static_cast<int>(threads);
  }
  if (rank.cores > kMostCores) {
    throw ConfigError("TRIREME_CORES=" + std::to_string(rank.cores) + " is no number of cores",
                      {.operation = "join", .advice = "Start ranks by `trireme launch`."});
  }
  if (rank.cores > 0) return rank.cores;
  const observe::Cores cores = observe::usable_cores();
  return bound(cores) ? cores.usable : std::max(1, cores.usable / std::max(1, rank.local_size));
}

void check_mpi(const std::string& transport, bool under_mpirun, int rank) {
  if (transport != "mpi" || under_mpirun) return;
  throw ConfigError("transport mpi needs ranks that mpirun started",
                    {.rank = rank,
                     .operation = "join",
                     .label = "comm.transport",
                     .advice = "Start it by mpirun, or use transport auto."});
}

void check_transport(const JobOptions& options, int ranks, bool under_mpirun) {
  check_mpi(options.transport, under_mpirun);
  comm::check_all_reduce(options.algorithm, {.ranks = ranks,
                                             .transport = options.transport,
                                             .can_map = maps_within_host(options.transport)});
}

}  // namespace trireme::inline v0::job
