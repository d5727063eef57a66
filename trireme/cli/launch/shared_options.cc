#include "trireme/cli/launch/shared_options.h"

#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/light.h"

namespace trireme::inline v0::cli {
namespace {

int number_in(const std::string& text, const std::string& range) {
  if (const auto value = parse_number<int>(text); value >= 1 && value <= kMostProcesses)
    return *value;
  refuse(
      "config",
      "--elastic " + range + " is not a range of rank counts from 1 to " + grouped(kMostProcesses),
      "Write MIN:MAX, such as --elastic 2:8.");
}

}  // namespace

std::pair<int, int> parse_elastic(const std::string& range) {
  const auto colon = range.find(':');
  if (colon == std::string::npos) return {number_in(range, range), number_in(range, range)};
  return {number_in(range.substr(0, colon), range), number_in(range.substr(colon + 1), range)};
}

void add_elastic_options(Command& command, ElasticArguments arguments) {
  command.option("--elastic", arguments.range,
                 "MIN:MAX: go on with MIN ranks or more if others are lost, start these again, and "
                 "have at most MAX (`trireme resize`)");
  command
      .option("--spares", arguments.spares,
              "Processes that wait, started, for the place of a rank that is lost")
      .between(0, kMostProcesses);
  command
      .option("--restarts", arguments.restarts,
              "How many lost processes are started again within an hour (100 with --elastic)")
      .at_least(0);
  command.option("--store", arguments.store,
                 "A folder, or etcd://HOST:2379/KEY: the coordinator is a process of its own with "
                 "its state there, and is started again when it is killed");
}

void add_copy_options(Command& command, int& multiple, int& stages) {
  command
      .option("--multiple", multiple,
              "Ranks that share one copy of the model: an elastic job has a multiple of it")
      .between(1, kMostProcesses);
  command.option("--stages", stages, "Pipeline stages of a copy, parallel.pipeline")
      .between(1, kMostProcesses);
}

void add_host_options(Command& command, HostArguments& arguments) {
  command.option("-H,--host", arguments.list,
                 "Hosts and their slots, one rank each: node07:4,node08:4");
  command.option("--hostfile", arguments.file, "File with a host per line: node07 slots=4");
  command.option("--host-timeout", arguments.timeout, "Seconds within which each host must answer")
      .between(1, 3600);
  command
      .option(
          "-x,--export", arguments.exported,
          "A variable that ranks on other hosts get, too (those of Trireme, TRIREME_*, they get)")
      .repeatable();
}

launch::HostOptions host_options(const HostArguments& arguments) {
  launch::HostOptions options;
  if (arguments.empty()) return options;
  if (!arguments.list.empty() && !arguments.file.empty())
    refuse("launch", "both -H and --hostfile name hosts", "Give one of them.");
  options.hosts = arguments.file.empty() ? launch::parse_hosts(arguments.list)
                                         : launch::read_hostfile(arguments.file);
  options.agent = {own_program(), "launch-host"};
  options.exported = arguments.exported;
  options.patience = from_seconds(arguments.timeout);
  return options;
}

}  // namespace trireme::inline v0::cli
