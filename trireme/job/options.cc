#include "trireme/job/options.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/observe/machine.h"

namespace trireme {
inline namespace v0 {
namespace job {
namespace {

void take_seconds(const launch::Getenv& get, const char* name, Duration standard, Duration& value) {
  const auto text = get(name);
  if (!text || text->empty() || value != standard) return;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (*end != '\0' || !(seconds > 0) || seconds > 1e9) {
    throw ConfigError(std::string(name) + "=" + *text + " is not a number of seconds",
                      {.operation = "config", .advice = "For example: TRIREME_TIMEOUT=30"});
  }
  value = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

void take_text(const launch::Getenv& get, const char* name, std::string& value) {
  const auto text = get(name);
  if (text && !text->empty() && value == "auto") value = *text;
}

// mpirun may have bound each rank to cores of its own; where it has not, the ranks share.
bool bound(const observe::Cores& cores) { return cores.affinity < cores.online; }

}  // namespace

JobOptions resolve_options(JobOptions options, const launch::Getenv& get) {
  const JobOptions standard;
  take_text(get, "TRIREME_COMM_TRANSPORT", options.transport);
  take_text(get, "TRIREME_COMM_ALGORITHM", options.algorithm);
  take_seconds(get, "TRIREME_TIMEOUT", standard.timeout, options.timeout);
  take_seconds(get, "TRIREME_TIMEOUT_USER_CODE", standard.timeout_user_code,
               options.timeout_user_code);
  const std::initializer_list<std::string_view> known = {"auto", "shm", "tcp", "mixed", "mpi"};
  if (std::find(known.begin(), known.end(), options.transport) == known.end()) {
    throw ConfigError("unknown transport '" + options.transport + "'",
                      {.operation = "config",
                       .label = "comm.transport",
                       .advice = "Use auto, shm, tcp, mixed or mpi."});
  }
  return options;
}

bool share_cores(const launch::RankEnvironment& rank) {
  if (rank.launcher.empty()) return rank.shared_cores;
  const observe::Cores cores = observe::usable_cores();
  return rank.local_size > (bound(cores) ? cores.online : cores.usable);
}

int resolve_cores(const launch::RankEnvironment& rank, const launch::Getenv& get) {
  if (const auto text = get("OMP_NUM_THREADS")) {
    if (const int threads = std::atoi(text->c_str()); threads > 0) return threads;
  }
  if (rank.cores > 0) return rank.cores;
  const observe::Cores cores = observe::usable_cores();
  return bound(cores) ? cores.usable : std::max(1, cores.usable / std::max(1, rank.local_size));
}

}  // namespace job
}  // namespace v0
}  // namespace trireme
