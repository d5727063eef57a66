#include "trireme/rendezvous/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"

namespace trireme::inline v0::rendezvous {
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

// Recognises each MPI's mpirun by the variables that it sets for every process.
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

void check_rank(const RankEnvironment& rank) {
  if (rank.rank < rank.size) return;
  throw ConfigError(rank.launcher + " says rank " + std::to_string(rank.rank) + " of " +
                        std::to_string(rank.size),
                    {.operation = "join", .advice = "Start ranks by `trireme launch`."});
}

// Reads torch.distributed's variables (env://), which torchrun sets for every process.
std::optional<RankEnvironment> from_torchrun(const Getenv& get) {
  RankEnvironment rank;
  rank.size = number(get, "WORLD_SIZE", 1);
  if (rank.size < 2 || !get("RANK")) return std::nullopt;
  rank.launcher = "torchrun";
  rank.rank = number(get, "RANK", 0);
  const int local_size = number(get, "LOCAL_WORLD_SIZE", 0);  // 0: ranks started by hand
  rank.local_size = local_size > 0 ? local_size : rank.size;
  rank.local_rank = number(get, "LOCAL_RANK", rank.rank);
  rank.host = get("TRIREME_HOST").value_or("");
  rank.secret_file = get("TRIREME_JOB_SECRET_FILE").value_or("");
  check_rank(rank);
  const auto address = get("MASTER_ADDR"), port = get("MASTER_PORT");
  if (!address || !port) {
    throw ConfigError("WORLD_SIZE says " + std::to_string(rank.size) +
                          " processes, but MASTER_ADDR and MASTER_PORT do not say where they meet",
                      {.operation = "join",
                       .advice = "Start it by torchrun, or by `trireme launch -n " +
                                 std::to_string(rank.size) + " -- PROGRAM`."});
  }
  rank.meeting = {
      .name = "torchrun " + get("TORCHELASTIC_RUN_ID").value_or("") + " " + *address + ":" + *port +
              " " + get("TORCHELASTIC_RESTART_COUNT").value_or("0"),
      .host = *address,
      .one_host = local_size > 0 ? local_size == rank.size : net::is_loopback(*address)};
  return rank;
}

// The number of tasks on node `node` in a list such as "2(x3),1"; 0 if it is not stated.
int tasks_of_node(const std::string& list, int node) {
  std::size_t at = 0;
  while (at < list.size()) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string one = list.substr(at, end - at);
    const std::size_t times = one.find("(x");
    node -= times == one.npos ? 1 : std::atoi(one.c_str() + times + 2);
    if (node < 0) return std::atoi(one.c_str());
    at = end + 1;
  }
  return 0;
}

int slurm_tasks(const Getenv& get) {
  return number(get, "SLURM_STEP_NUM_TASKS", number(get, "SLURM_NTASKS", 1));
}

// Slurm numbers the steps of srun from 0. Its highest numbers mean no step of srun: the batch
// script and the allocation's shell.
bool in_srun_step(const Getenv& get) {
  const auto step = get("SLURM_STEP_ID");
  return get("SLURM_JOB_ID") && step && std::strtoull(step->c_str(), nullptr, 10) < 0xfffffff0u;
}

// Reads the variables that srun sets for every task of a step.
std::optional<RankEnvironment> from_srun(const Getenv& get) {
  RankEnvironment rank;
  rank.size = slurm_tasks(get);
  if (rank.size < 2 || !get("SLURM_PROCID")) return std::nullopt;
  if (in_batch_script(get)) {
    const std::string tasks = std::to_string(rank.size);
    throw ConfigError(
        "Slurm's allocation has " + tasks +
            " tasks (SLURM_NTASKS), but srun has not started this process: it would "
            "run alone",
        {.operation = "join",
         .advice = "Start it by `srun -n " + tasks + " PROGRAM`, or by `trireme launch -n " +
                   tasks + " -- PROGRAM` on this host alone, as `trireme train --ranks " + tasks +
                   "` does."});
  }
  const auto job = get("SLURM_JOB_ID"), step = get("SLURM_STEP_ID");
  rank.launcher = "srun";
  rank.rank = number(get, "SLURM_PROCID", 0);
  rank.local_rank = number(get, "SLURM_LOCALID", rank.rank);
  rank.host = get("TRIREME_HOST").value_or("");
  rank.secret_file = get("TRIREME_JOB_SECRET_FILE").value_or("");
  check_rank(rank);
  const int nodes = number(get, "SLURM_STEP_NUM_NODES", number(get, "SLURM_NNODES", 1));
  const std::string list =
      get("SLURM_STEP_NODELIST").value_or(get("SLURM_NODELIST").value_or("localhost"));
  const std::string tasks = get("SLURM_STEP_TASKS_PER_NODE").value_or("");
  rank.local_size = nodes == 1 ? rank.size : tasks_of_node(tasks, number(get, "SLURM_NODEID", 0));
  rank.meeting = {
      .name = "srun " + *job + "." + *step, .host = first_host(list), .one_host = nodes == 1};
  return rank;
}

std::optional<RankEnvironment> from_tensorflow(const Getenv& get) {
  if (const auto config = get("TF_CONFIG"); config && config->find("\"task\"") != config->npos) {
    throw ConfigError("started with TF_CONFIG, which cannot be joined to one job yet",
                      {.operation = "join", .advice = "Start it by `trireme launch`."});
  }
  return std::nullopt;
}

std::optional<RankEnvironment> alone(const Getenv&) { return RankEnvironment{}; }

constexpr Resolver kResolvers[] = {from_trireme_launch, from_mpirun,     from_torchrun,
                                   from_srun,           from_tensorflow, alone};

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  return value;
}

bool in_batch_script(const Getenv& get) {
  return slurm_tasks(get) > 1 && get("SLURM_PROCID") && !in_srun_step(get);
}

void ignore_launchers() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
                           "SLURM_NTASKS", "TF_CONFIG"})
    unsetenv(name);
}

std::string first_host(const std::string& node_list) {
  std::string host;
  for (std::size_t at = 0; at < node_list.size() && node_list[at] != ','; ++at) {
    if (node_list[at] != '[') {
      host += node_list[at];
      continue;
    }
    const std::size_t end = std::min(node_list.find(']', at), node_list.size());
    const std::string range = node_list.substr(at + 1, end - at - 1);
    host += range.substr(0, range.find_first_of(",-"));
    at = end;
  }
  return host;
}

RankEnvironment resolve_environment(const Getenv& get) {
  for (const Resolver resolver : kResolvers) {
    if (auto rank = resolver(get)) return *rank;
  }
  return {};
}

}  // namespace trireme::inline v0::rendezvous
