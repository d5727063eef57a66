#include "trireme/rendezvous/launchers/launchers.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <vector>

#include "trireme/base/joined.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/launchers/tf_config.h"

namespace trireme::inline v0::rendezvous {
namespace {

[[noreturn]] void refuse_join(const std::string& what,
                              const std::string& advice = "Start ranks by `trireme launch`.") {
  refuse("join", what, advice);
}

// The variables may be meant for another launcher: a batch script exports WORLD_SIZE for all ranks.
struct Incomplete : ConfigError {
  using ConfigError::ConfigError;
};

int number(const Getenv& get, const char* name, int fallback) {
  const auto text = get(name);
  if (!text || text->empty()) return fallback;
  const auto value = parse_number<int>(*text);
  if (!value || *value < 0) refuse_join(std::string(name) + "=" + *text + " is not a number");
  return *value;
}

// The variables that are set: "RANK=3, WORLD_SIZE=4".
std::string describe(const Getenv& get, std::initializer_list<const char*> names) {
  std::vector<std::string> set;
  for (const char* name : names)
    if (const auto value = get(name)) set.push_back(std::string(name) + "=" + *value);
  return joined(set);
}

Role role_named(const std::string& name) {
  if (name == "worker") return Role::Worker;
  if (name == "server") return Role::Server;
  if (name == "evaluator") return Role::Evaluator;
  refuse_join("TRIREME_ROLE=" + name + " is no role", "Use worker, server or evaluator.");
}

// Reads what `trireme launch` sets and `trireme coordinator` prints.
RankEnvironment read_own(const Getenv& get) {
  RankEnvironment rank;
  rank.coordinator = get("TRIREME_COORDINATOR").value_or("");
  rank.rank = number(get, "TRIREME_RANK", -1);
  rank.size = number(get, "TRIREME_SIZE", 0);
  const std::string elastic = get("TRIREME_ELASTIC").value_or("0");
  if (elastic != "0" && elastic != "1" && elastic != "workers")
    refuse_join("TRIREME_ELASTIC=" + elastic + " is not 0, 1 or workers",
                "Set it to what `trireme coordinator` prints: 1 for ranks of an "
                "elastic job, workers for workers that train on their own.");
  rank.elastic = elastic == "1";
  rank.on_its_own = elastic == "workers";
  // A process that meets nobody does not know which others are on its host.
  rank.local_rank = number(get, "TRIREME_LOCAL_RANK", rank.on_its_own ? 0 : rank.rank);
  rank.local_size = number(get, "TRIREME_LOCAL_SIZE", rank.size);
  rank.host = get("TRIREME_HOST").value_or("");
  rank.job = get("TRIREME_JOB").value_or("job");
  rank.restarts = number(get, "TRIREME_RESTARTS", 0);
  rank.secret_descriptor = number(get, "TRIREME_SECRET_FD", -1);
  rank.secret_file = get("TRIREME_JOB_SECRET_FILE").value_or("");
  rank.status_descriptor = number(get, "TRIREME_STATUS_FD", -1);
  rank.cores = number(get, "TRIREME_CORES", 0);
  rank.shared_cores = number(get, "TRIREME_SHARED_CORES", 0) != 0;
  rank.role = role_named(get("TRIREME_ROLE").value_or("worker"));
  rank.servers = number(get, "TRIREME_SERVERS", 0);
  rank.evaluator = number(get, "TRIREME_EVALUATOR", 0) != 0;
  rank.workers = number(get, "TRIREME_WORKERS", 0);
  rank.more_workers = number(get, "TRIREME_MORE_WORKERS", 0);
  if (rank.roles().count(rank.role) != rank.size) {
    refuse_join(
        "TRIREME_ROLE and TRIREME_SIZE contradict TRIREME_WORKERS, TRIREME_SERVERS or "
        "TRIREME_EVALUATOR",
        "Start processes by `trireme launch`.");
  }
  const int most = rank.size + (rank.role == Role::Worker ? rank.more_workers : 0);
  if (rank.rank < 0 || rank.rank >= most)
    refuse_join("TRIREME_RANK and TRIREME_SIZE do not name a rank");
  return rank;
}

// A place in an elastic TFJob. If TF_CONFIG names all tasks, TRIREME_ELASTIC makes it one.
std::optional<ElasticPlace> elastic_place(const Getenv& get) {
  const auto config = get("TF_CONFIG");
  const std::string elastic = get("TRIREME_ELASTIC").value_or("");
  if (!config || config->empty()) return std::nullopt;
  return parse_elastic_tf_config(*config, /*asked=*/!elastic.empty() && elastic != "0");
}

bool has_coordinator(const Getenv& get) { return !get("TRIREME_COORDINATOR").value_or("").empty(); }

// "TRIREME_SERVERS=2", or that it is not set.
std::string as_set(const Getenv& get, const char* name) {
  const auto value = get(name);
  return name + (value ? "=" + *value : " is not set");
}

// Refuses workers that nobody coordinates.
void check_servers(const ElasticPlace& place, const Getenv& get) {
  if (has_coordinator(get) || place.role == Role::Server || place.servers > 0) return;
  const bool names_all = place.workers > 0;
  refuse_join(
      names_all
          ? "TRIREME_ELASTIC is set, but TF_CONFIG has no ps, beside which the coordinator of "
            "an elastic job would be"
          : "TF_CONFIG has a sparseCluster, which names " + place.name +
                " and not all workers: it does not say how many ranks there are, and has no "
                "ps, beside which the coordinator would be",
      std::string("Give the TFJob PS replicas, or ") +
          (names_all ? "unset TRIREME_ELASTIC" : "leave enableDynamicWorker out of it") +
          ". For workers that come and go without servers, run `trireme coordinator`, and set "
          "TRIREME_COORDINATOR " +
          (names_all ? "" : "and TRIREME_WORKERS ") + "in all pods.");
}

int workers_of(const ElasticPlace& place, const Getenv& get) {
  return number(get, "TRIREME_WORKERS", static_cast<int>(place.workers));
}

// Refuses numbers that are missing, or contradict TF_CONFIG.
void check_numbers(const ElasticPlace& place, const Getenv& get) {
  const int workers = workers_of(place, get);
  if (workers == 0)
    refuse_join("TF_CONFIG has a sparseCluster, which names " + place.name +
                    " and not all workers: it does not say how many ranks there are",
                "In all pods, set TRIREME_WORKERS to the most workers that may be there, and "
                "TRIREME_SERVERS to the number of PS replicas; or leave enableDynamicWorker out of "
                "the TFJob.");
  const int servers = number(get, "TRIREME_SERVERS", static_cast<int>(place.servers));
  const std::string are = as_set(get, "TRIREME_SERVERS");
  const std::string advice = "Set it to the number of PS replicas, in all pods.";
  if (place.servers > 0 && static_cast<std::size_t>(servers) != place.servers)
    refuse_join("TF_CONFIG names " + std::to_string(place.servers) + " ps, but " + are, advice);
  if (place.role == Role::Server) {
    if (place.index < static_cast<std::size_t>(servers)) return;
    refuse_join("TF_CONFIG makes this process " + place.name + ", but " + are, advice);
  }
  const bool alone = get("TRIREME_ELASTIC").value_or("") == "workers";
  const int most = workers + (alone ? number(get, "TRIREME_MORE_WORKERS", 0) : 0);
  if (place.index >= static_cast<std::size_t>(most))
    refuse_join("TF_CONFIG makes this process " + place.name + ", but at most " +
                    counted(most, "worker") + " may be there (" + as_set(get, "TRIREME_WORKERS") +
                    ")",
                std::string("Set ") + (alone ? "TRIREME_MORE_WORKERS" : "TRIREME_WORKERS") +
                    " to a larger number, in all pods.");
}

// Refuses a server that does not know where the coordinator is.
void check_first_server(const ElasticPlace& place, const Getenv& get) {
  if (has_coordinator(get) || !place.first_server.empty()) return;
  refuse_join("TF_CONFIG says that " + place.name + " is at " + place.own +
                  ", from which the address of ps 0, beside which the coordinator is, does not "
                  "follow: the name does not begin with JOB-ps-" +
                  std::to_string(place.index),
              "Run `trireme coordinator`, and set TRIREME_COORDINATOR in all pods.");
}

// The variables of a process of an elastic TFJob: TF_CONFIG's, then those that are set.
Getenv with_place(const ElasticPlace& place, const Getenv& get) {
  const bool server = place.role == Role::Server;
  const std::string workers = std::to_string(workers_of(place, get));
  const std::string servers =
      std::to_string(number(get, "TRIREME_SERVERS", static_cast<int>(place.servers)));
  const std::string elastic = get("TRIREME_ELASTIC").value_or("");
  const std::map<std::string, std::string> own = {
      {"TRIREME_COORDINATOR",
       has_coordinator(get) ? *get("TRIREME_COORDINATOR") : place.first_server},
      {"TRIREME_ELASTIC", elastic.empty() || elastic == "0" ? "1" : elastic},
      {"TRIREME_ROLE", server ? "server" : "worker"},
      {"TRIREME_RANK", std::to_string(place.index)},
      {"TRIREME_SIZE", server ? servers : workers},
      {"TRIREME_WORKERS", workers},
      {"TRIREME_SERVERS", servers},
      {"TRIREME_LOCAL_RANK", get("TRIREME_LOCAL_RANK").value_or("0")},  // each pod counts as a host
      {"TRIREME_LOCAL_SIZE", get("TRIREME_LOCAL_SIZE").value_or("1")}};
  return [own, get](const char* name) {
    const auto found = own.find(name);
    return found == own.end() ? get(name) : std::optional(found->second);
  };
}

RankEnvironment from_elastic_tf_config(const ElasticPlace& place, const Getenv& get,
                                       std::string& why) {
  why = describe(get, {"TRIREME_COORDINATOR", "TRIREME_ELASTIC", "TRIREME_WORKERS",
                       "TRIREME_MORE_WORKERS", "TRIREME_SERVERS"});
  why = "TF_CONFIG" + (why.empty() ? "" : ", " + why);
  check_servers(place, get);
  check_numbers(place, get);
  check_first_server(place, get);
  RankEnvironment rank = read_own(with_place(place, get));
  rank.chief = place.chief;
  rank.coordinator_beside_server = !has_coordinator(get);
  return rank;
}

std::optional<RankEnvironment> from_trireme_launch(const Getenv& get, std::string& why) {
  if (!has_coordinator(get)) return std::nullopt;
  if (!get("TRIREME_RANK"))
    if (const auto place = elastic_place(get)) return from_elastic_tf_config(*place, get, why);
  why = describe(get, {"TRIREME_COORDINATOR", "TRIREME_RANK", "TRIREME_SIZE"});
  return read_own(get);
}

struct Variables {
  const char *rank, *size, *local_rank, *local_size;
};

// Reads the numbers that a launcher sets for every process. Without a local size, all ranks count
// as ranks of one host.
std::optional<RankEnvironment> read_numbers(const Getenv& get, const Variables& names,
                                            std::string& why) {
  why = describe(get, {names.rank, names.size});
  RankEnvironment rank;
  rank.size = number(get, names.size, 1);
  if (rank.size < 2 || !get(names.rank)) return std::nullopt;
  rank.rank = number(get, names.rank, 0);
  if (rank.rank >= rank.size) refuse_join(why + " name no rank");
  rank.local_rank = number(get, names.local_rank, rank.rank);
  const int local_size = number(get, names.local_size, 0);
  rank.local_size = local_size > 0 ? local_size : rank.size;
  return rank;
}

// The ranks meet over MPI, so no meeting place is set. A size without a rank is refused: mpirun
// sets both, and copies would train side by side.
std::optional<RankEnvironment> read_mpi(const Getenv& get, const Variables& names,
                                        std::string& why) {
  auto rank = read_numbers(get, names, why);
  if (!rank && number(get, names.size, 1) > 1)
    refuse_join(why + " means several processes, but " + names.rank + " is not set");
  return rank;
}

template <const Variables& names>
std::optional<RankEnvironment> from_mpi(const Getenv& get, std::string& why) {
  return read_mpi(get, names, why);
}

// LSF's Job Step Manager. Its MPI, Spectrum MPI, is an Open MPI, whose variables it sets, too.
constexpr Variables kJsrun{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
                           "JSM_NAMESPACE_LOCAL_SIZE"};
constexpr Variables kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
// MPICH's Hydra; srun --mpi=pmi2 sets the first two.
constexpr Variables kMpich{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

// Refuses one of the two numbers without the other: copies would train side by side.
void check_both_numbers(const Getenv& get, const std::string& why) {
  const bool size_alone = number(get, "WORLD_SIZE", 1) > 1 && !get("RANK");
  const bool rank_alone = !get("WORLD_SIZE") && get("MASTER_ADDR") && number(get, "RANK", 0) > 0;
  if (!size_alone && !rank_alone) return;
  throw Incomplete(
      why + " means several processes, but " + (size_alone ? "RANK" : "WORLD_SIZE") + " is not set",
      {.operation = "join",
       .advice = "Set both in each process, or unset " +
                 std::string(size_alone ? "WORLD_SIZE" : "RANK") + " to run one process."});
}

// torch.distributed's variables (env://), which torchrun sets for every process.
std::optional<RankEnvironment> from_torchrun(const Getenv& get, std::string& why) {
  auto rank = read_numbers(get, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, why);
  check_both_numbers(get, why);
  if (!rank) return std::nullopt;
  const auto address = get("MASTER_ADDR"), port = get("MASTER_PORT");
  if (!address || !port) {
    refuse_join("WORLD_SIZE says " + std::to_string(rank->size) +
                    " processes, but MASTER_ADDR and MASTER_PORT do not say where they meet",
                "Start it by torchrun, or by `trireme launch -n " + std::to_string(rank->size) +
                    " -- PROGRAM`.");
  }
  const bool by_hand = number(get, "LOCAL_WORLD_SIZE", 0) == 0;
  rank->meeting = {
      .name = "torchrun " + get("TORCHELASTIC_RUN_ID").value_or("") + " " + *address + ":" + *port +
              " " + get("TORCHELASTIC_RESTART_COUNT").value_or("0"),
      .host = *address,
      .one_host = by_hand ? net::is_loopback(*address) : rank->local_size == rank->size};
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

// The variables that srun sets for every task of a step.
std::optional<RankEnvironment> from_srun(const Getenv& get, std::string& why) {
  const char* const tasks = get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  // The tasks of each node are a list, which is read below.
  auto rank = read_numbers(get, {"SLURM_PROCID", tasks, "SLURM_LOCALID", ""}, why);
  if (in_batch_script(get)) {
    const std::string size = std::to_string(slurm_tasks(get));
    refuse_join("Slurm's allocation has " + size +
                    " tasks (SLURM_NTASKS), but srun has not started this process: it would "
                    "run alone",
                "Start it by `srun -n " + size + " PROGRAM`, or by `trireme launch -n " + size +
                    " -- PROGRAM` on this host alone, as `trireme train --ranks " + size +
                    "` does.");
  }
  if (!rank) return std::nullopt;
  const int nodes = number(get, "SLURM_STEP_NUM_NODES", number(get, "SLURM_NNODES", 1));
  const std::string list =
      get("SLURM_STEP_NODELIST").value_or(get("SLURM_NODELIST").value_or("localhost"));
  if (nodes > 1) {
    rank->local_size = tasks_of_node(get("SLURM_STEP_TASKS_PER_NODE").value_or(""),
                                     number(get, "SLURM_NODEID", 0));
  }
  rank->meeting = {.name = "srun " + *get("SLURM_JOB_ID") + "." + *get("SLURM_STEP_ID"),
                   .host = first_host(list),
                   .one_host = nodes == 1};
  return rank;
}

std::optional<RankEnvironment> from_tf_config(const Getenv& get, std::string& why) {
  const auto config = get("TF_CONFIG");
  if (!config || config->empty()) return std::nullopt;
  why = "TF_CONFIG";
  if (const auto place = elastic_place(get)) return from_elastic_tf_config(*place, get, why);
  auto rank = parse_tf_config(*config);
  return rank && rank->several() ? rank : std::nullopt;
}

// Kubeflow's trainer (TrainJob) sets torchrun's options. Without torchrun each pod is one rank.
std::optional<RankEnvironment> from_trainjob(const Getenv& get, std::string& why) {
  if (!get("PET_NNODES")) return std::nullopt;
  auto rank = read_mpi(get, {"PET_NODE_RANK", "PET_NNODES", "", ""}, why);
  if (!rank) return std::nullopt;
  const auto address = get("PET_MASTER_ADDR"), port = get("PET_MASTER_PORT");
  if (!address || !port) {
    refuse_join(why + ", but PET_MASTER_ADDR and PET_MASTER_PORT do not say where they meet",
                "Start it as a TrainJob, or by torchrun.");
  }
  if (const std::string processes = get("PET_NPROC_PER_NODE").value_or("1"); processes != "1") {
    refuse_join(why + ", but PET_NPROC_PER_NODE=" + processes +
                    " means several processes in each pod, and nothing has started them",
                "Set numProcPerNode of the TrainJob to 1: a pod is one rank.");
  }
  rank->meeting = {
      .name = "TrainJob " + *address + ":" + *port, .host = *address, .one_host = false};
  rank->local_rank = 0;
  rank->local_size = 1;
  return rank;
}

// Kubernetes tells a pod of an Indexed Job its index only. The manifest sets the other two
// variables (deploy/kubernetes/indexed-job.yaml); without them the pods are independent.
std::optional<RankEnvironment> from_indexed_job(const Getenv& get, std::string& why) {
  if (!get("TRIREME_JOB_COMPLETIONS")) return std::nullopt;
  auto rank = read_mpi(get, {"JOB_COMPLETION_INDEX", "TRIREME_JOB_COMPLETIONS", "", ""}, why);
  if (!rank) return std::nullopt;
  const std::string host = get("TRIREME_JOB_FIRST_HOST").value_or("");
  if (host.empty()) {
    refuse_join(why + " means several pods, but TRIREME_JOB_FIRST_HOST is not set",
                "Set it to the host name of index 0: JOB-0.SERVICE, where SERVICE "
                "is the Job's headless service.");
  }
  rank->meeting = {.name = "Indexed Job " + host, .host = host, .one_host = false};
  rank->local_rank = 0;  // each pod counts as a host
  rank->local_size = 1;
  return rank;
}

// PMIx tells a process its rank by a variable, but the size only by its server. Rank 0 may be
// alone; if it is not, the other ranks refuse and end the job.
std::optional<RankEnvironment> from_pmix(const Getenv& get, std::string& why) {
  why = describe(get, {"PMIX_RANK"});
  if (number(get, "PMIX_RANK", 0) > 0) {
    refuse_join(why + " means several processes, but PMIx has no variable for how many",
                "Start it by Open MPI's mpirun, by srun or by `trireme launch`.");
  }
  return std::nullopt;
}

constexpr Launcher kForeign[] = {
    {"jsrun", "jsrun", false, {"JSM_NAMESPACE_SIZE"}, from_mpi<kJsrun>},
    {"openmpi", "mpirun (Open MPI)", true, {"OMPI_COMM_WORLD_SIZE"}, from_mpi<kOpenMpi>},
    {"mpich", "mpirun (MPICH)", true, {"PMI_SIZE"}, from_mpi<kMpich>},
    {"torchrun", "torchrun", true, {"WORLD_SIZE", "RANK"}, from_torchrun},
    {"srun", "srun", false, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, from_srun},
    {"tfjob", "TFJob", false, {"TF_CONFIG"}, from_tf_config},
    {"trainjob", "TrainJob", false, {"PET_NNODES"}, from_trainjob},
    {"indexedjob", "Indexed Job", false, {"TRIREME_JOB_COMPLETIONS"}, from_indexed_job},
    {"pmix", "PMIx", false, {"PMIX_RANK"}, from_pmix}};

}  // namespace

const Launcher kOwnLauncher{"launch", "trireme launch", true, {}, from_trireme_launch};

std::span<const Launcher> foreign_launchers() { return kForeign; }

Reading read_launcher(const Launcher& launcher, const Getenv& get) {
  Reading reading;
  try {
    reading.rank = launcher.read(get, reading.why);
  } catch (const Incomplete& error) {
    reading.refusal = error;
    reading.incomplete = true;
  } catch (const ConfigError& error) {
    reading.refusal = error;
  }
  if (reading.rank && reading.rank->coordinator.empty()) {
    reading.rank->launcher = launcher.name;
    reading.rank->host = get("TRIREME_HOST").value_or("");
    reading.rank->secret_file = get("TRIREME_JOB_SECRET_FILE").value_or("");
  }
  return reading;
}

bool in_batch_script(const Getenv& get) {
  return slurm_tasks(get) > 1 && get("SLURM_PROCID") && !in_srun_step(get);
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

}  // namespace trireme::inline v0::rendezvous
