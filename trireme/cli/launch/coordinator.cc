// trireme coordinator: coordinates a job whose processes others start, and which may come and go.
#include <cstdio>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/launch/shared_options.h"
#include "trireme/cli/program.h"
#include "trireme/launch/coordinator/standing_coordinator.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::cli {
namespace {

struct CoordinatorArguments {
  std::string elastic, listen = "127.0.0.1:29400", store, job = "job";
  int workers = 0, servers = 0, spares = 0, multiple = 1, stages = 1;
  double gather = 10, patience = 600, silence = 6;
};

// Replaces "all addresses" by this host's name, to which other hosts can connect.
std::string reached_at(const std::string& host, const std::string& endpoint) {
  if (host != "0.0.0.0" && host != "::") return endpoint;
  return observe::host_name() + endpoint.substr(endpoint.rfind(':'));
}

std::string up_to(int count) { return count == 1 ? "0" : "0 to " + std::to_string(count - 1); }

// The variables that each process needs. `most`: workers that may be there.
std::string environment_text(const CoordinatorArguments& arguments, const std::string& endpoint,
                             int most) {
  const bool alone = arguments.workers > 0;
  const int workers = alone ? arguments.workers : most;
  const std::string size = std::to_string(workers);
  std::string text = "  TRIREME_COORDINATOR=" + endpoint + " TRIREME_JOB=" + arguments.job +
                     " TRIREME_ELASTIC=" + (alone ? "workers" : "1") + " TRIREME_JOB_SECRET_FILE\n";
  if (arguments.servers == 0)
    return text + "  TRIREME_SIZE=" + size + " TRIREME_RANK=" + up_to(most) + "\n";
  text += "  TRIREME_WORKERS=" + size + " TRIREME_SERVERS=" + std::to_string(arguments.servers);
  if (most > workers) text += " TRIREME_MORE_WORKERS=" + std::to_string(most - workers);
  return text + "\n  a worker: TRIREME_SIZE=" + size + " TRIREME_RANK=" + up_to(most) +
         "\n  a server: TRIREME_ROLE=server TRIREME_SIZE=" + std::to_string(arguments.servers) +
         " TRIREME_RANK=" + up_to(arguments.servers) + "\n";
}

// The least and the largest number of workers.
std::pair<int, int> range_of(const CoordinatorArguments& arguments) {
  if (arguments.workers == 0) {
    if (arguments.elastic.empty())
      refuse(
          "coordinator", "neither --elastic nor --workers is given",
          "Give --elastic MIN:MAX for ranks that train together, or --workers N (with --servers) "
          "for workers that train on their own.");
    return parse_elastic(arguments.elastic);
  }
  if (arguments.servers == 0)
    refuse("coordinator", "--workers needs --servers",
           "Workers that train on their own need servers.");
  if (arguments.spares > 0 || arguments.multiple > 1 || arguments.stages > 1)
    refuse("coordinator", "--workers cannot be combined with --spares, --multiple or --stages",
           "Leave these out: nobody waits for a worker that trains on its own.");
  if (arguments.elastic.empty()) return {1, arguments.workers};
  const auto range = parse_elastic(arguments.elastic);
  if (range.first > range.second || range.second < arguments.workers)
    refuse("coordinator",
           "--workers " + std::to_string(arguments.workers) +
               " cannot be combined with --elastic " + arguments.elastic,
           "Write MIN:MAX, where MAX is at least as many as MIN and as the workers.");
  return range;
}

int coordinate_command(const CoordinatorArguments& arguments, bool gathers) {
  if (arguments.workers > 0 && gathers)
    refuse("coordinator", "--workers cannot be combined with --gather",
           "Leave it out: workers that train on their own begin when they come.");
  const auto [min, max] = range_of(arguments);
  const auto listen = net::parse_endpoint(arguments.listen);
  if (!listen)
    refuse("coordinator", "--listen " + arguments.listen + " is no HOST:PORT",
           "For example: --listen 0.0.0.0:29400");
  const std::string file = rendezvous::process_environment("TRIREME_JOB_SECRET_FILE").value_or("");
  if (file.empty())
    throw ConfigError("the job has no secret",
                      {.operation = "coordinator",
                       .label = "TRIREME_JOB_SECRET_FILE",
                       .advice = "Make one, and give it to every process: openssl rand -hex 32 > "
                                 "secret; chmod 600 secret; export "
                                 "TRIREME_JOB_SECRET_FILE=$PWD/secret"});
  launch::StandingOptions options;
  options.alone = arguments.workers;
  options.servers = arguments.servers;
  options.elastic.min = min;
  options.elastic.max = max;
  options.elastic.multiple = arguments.multiple;
  options.elastic.stages = arguments.stages;
  options.elastic.spares = arguments.spares;
  options.elastic.silence = from_seconds(arguments.silence);
  options.address = listen->host;
  options.port = listen->port;
  options.job = arguments.job;
  options.secret = rendezvous::read_secret_file(file);
  if (!arguments.store.empty()) options.store = rendezvous::make_store(arguments.store);
  options.gather = from_seconds(arguments.gather);
  options.patience = from_seconds(arguments.patience);
  const int processes = max + arguments.spares;
  options.on_ready = [&](const std::string& endpoint) {
    const std::string awaited = (min < processes ? std::to_string(min) + " to " : "") +
                                (arguments.servers == 0 ? counted(processes, "process", "processes")
                                                        : counted(processes, "worker") + " and " +
                                                              counted(arguments.servers, "server"));
    std::printf("job %s at %s waits for %s. Each has in its environment\n%s", arguments.job.c_str(),
                endpoint.c_str(), awaited.c_str(),
                environment_text(arguments, reached_at(listen->host, endpoint), processes).c_str());
    std::fflush(stdout);
  };
  return launch::coordinate(options);
}

}  // namespace

void declare_coordinator(Command& command) {
  auto& options = command.keep<CoordinatorArguments>();
  command.about("Keep a job whose processes Kubernetes, Slurm or you start, and come and go")
      .footer(
          "Example:\n  trireme coordinator --elastic 2:8 --listen 0.0.0.0:29400 --store "
          "/shared/job\n"
          "With --store it may be killed and started again: the ranks go on meanwhile, and "
          "reconnect.\nCtrl-C then ends the coordinator alone; kill -USR1 stops the training. See "
          "docs/elastic.md.");
  command.option("--elastic", options.elastic,
                 "MIN:MAX: begin and go on with MIN ranks or more, and have at most MAX");
  command
      .option(
          "--workers", options.workers,
          "Workers that train on their own (server.staleness), each with its part of a batch of "
          "so many; with --elastic, MAX may be there")
      .between(1, kMostProcesses);
  command.option("--listen", options.listen, "HOST:PORT at which processes reach it");
  command.option("--store", options.store,
                 "What survives its end: a folder, or etcd://HOST:2379/KEY");
  command.option("--job", options.job, "Name of the job");
  command
      .option("--servers", options.servers,
              "Parameter servers, which are processes beside the ranks")
      .between(0, kMostProcesses)
      .shows_default();
  command.option("--spares", options.spares, "Processes beyond MAX that wait for a place")
      .between(0, kMostProcesses)
      .shows_default();
  add_copy_options(command, options.multiple, options.stages);
  command.option("--gather", options.gather, "Seconds in which more than MIN may come at the start")
      .between(0, 1e9);
  command
      .option("--patience", options.patience,
              "Seconds to wait with fewer than MIN, for the store, and ranks for the coordinator")
      .between(1, 1e9);
  command
      .option("--silence", options.silence,
              "Seconds without a heartbeat after which a rank is lost")
      .between(1, 1e9);
  command.run([&] { return coordinate_command(options, command.given("--gather")); });
}

}  // namespace trireme::inline v0::cli
