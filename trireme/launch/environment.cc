#include "trireme/launch/environment.h"

#include <charconv>
#include <cstdlib>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace launch {
namespace {

using Resolver = std::optional<RankEnvironment> (*)(const Getenv& get);

int number(const Getenv& get, const char* name, int fallback) {
  const auto text = get(name);
  if (!text || text->empty()) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0) {
    throw ConfigError(std::string(name) + "=" + *text + " is not a number",
                      {.operation = "join", .advice = "Start ranks by `trireme launch`."});
  }
  return value;
}

std::optional<RankEnvironment> from_trireme_launch(const Getenv& get) {
  const auto coordinator = get("TRIREME_COORDINATOR");
  if (!coordinator || coordinator->empty()) return std::nullopt;
  RankEnvironment rank;
  rank.coordinator = *coordinator;
  rank.rank = number(get, "TRIREME_RANK", -1);
  rank.size = number(get, "TRIREME_SIZE", 0);
  rank.local_rank = number(get, "TRIREME_LOCAL_RANK", rank.rank);
  rank.local_size = number(get, "TRIREME_LOCAL_SIZE", rank.size);
  rank.host = get("TRIREME_HOST").value_or("");
  rank.job = get("TRIREME_JOB").value_or("job");
  rank.epoch = static_cast<std::uint32_t>(number(get, "TRIREME_EPOCH", 0));
  rank.secret_descriptor = number(get, "TRIREME_SECRET_FD", -1);
  rank.secret_file = get("TRIREME_JOB_SECRET_FILE").value_or("");
  rank.status_descriptor = number(get, "TRIREME_STATUS_FD", -1);
  rank.cores = number(get, "TRIREME_CORES", 0);
  rank.shared_cores = number(get, "TRIREME_SHARED_CORES", 0) != 0;
  if (rank.rank < 0 || rank.rank >= rank.size) {
    throw ConfigError("TRIREME_RANK and TRIREME_SIZE do not name a rank",
                      {.operation = "join", .advice = "Start ranks by `trireme launch`."});
  }
  return rank;
}

// Each MPI's launcher by the variables that it gives to every process.
std::optional<RankEnvironment> from_mpirun(const Getenv& get) {
  struct Mpirun {
    const char *name, *size, *rank, *local_size, *local_rank;
  };
  static constexpr Mpirun kMpiruns[] = {
      {"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"mpirun (MPICH)", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"}};
  for (const Mpirun& one : kMpiruns) {
    RankEnvironment rank;
    rank.size = number(get, one.size, 1);
    if (rank.size < 2) continue;
    rank.launcher = one.name;
    rank.rank = number(get, one.rank, 0);
    rank.local_size = number(get, one.local_size, rank.size);
    rank.local_rank = number(get, one.local_rank, rank.rank);
    rank.host = get("TRIREME_HOST").value_or("");
    return rank;
  }
  return std::nullopt;
}

// Each foreign launcher by the variable that says how many processes it started.
std::optional<RankEnvironment> from_foreign_launcher(const Getenv& get) {
  struct Foreign {
    const char* size;
    const char* with;  // must be set too; null: nothing
    const char* name;
  };
  static constexpr Foreign kForeign[] = {{"SLURM_NTASKS", "SLURM_PROCID", "srun"},
                                         {"WORLD_SIZE", "RANK", "torchrun"}};
  for (const Foreign& one : kForeign) {
    if (one.with && !get(one.with)) continue;
    if (const int size = number(get, one.size, 1); size > 1) {
      throw ConfigError(
          "started by " + std::string(one.name) + " as one of " + std::to_string(size) +
              " processes (" + one.size + "), which cannot be joined to one job yet",
          {.operation = "join",
           .advice = "Start it by `trireme launch -n " + std::to_string(size) + " -- PROGRAM`."});
    }
  }
  if (const auto config = get("TF_CONFIG"); config && config->find("\"task\"") != config->npos) {
    throw ConfigError("started with TF_CONFIG, which cannot be joined to one job yet",
                      {.operation = "join", .advice = "Start it by `trireme launch`."});
  }
  return std::nullopt;
}

std::optional<RankEnvironment> alone(const Getenv&) { return RankEnvironment{}; }

constexpr Resolver kResolvers[] = {from_trireme_launch, from_mpirun, from_foreign_launcher, alone};

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  return value;
}

RankEnvironment resolve_environment(const Getenv& get) {
  for (const Resolver resolver : kResolvers) {
    if (auto rank = resolver(get)) return *rank;
  }
  return {};
}

}  // namespace launch
}  // namespace v0
}  // namespace trireme
