#include "trireme/cli/launch/host_options.h"

#include "trireme/base/error.h"
#include "trireme/cli/launch/own_run.h"
#include "trireme/cli/light.h"

namespace trireme::inline v0::cli {

void add_host_options(Command& command, HostArguments& arguments) {
  command.option("-H,--host", arguments.list,
                 "Hosts and their slots, one rank each: node07:4,node08:4");
  command.option("--hostfile", arguments.file, "File with a host per line: node07 slots=4");
  command.option("--host-timeout", arguments.timeout, "Seconds within which each host must answer")
      .between(1, 3600)
      .shows_default();
  command
      .option(
          "-x,--export", arguments.exported,
          "A variable that ranks on other hosts get, too (those of Trireme, TRIREME_*, they get)")
      .repeatable();
}

launch::HostOptions host_options(const HostArguments& arguments) {
  launch::HostOptions options;
  if (arguments.empty()) return options;
  if (!arguments.list.empty() && !arguments.file.empty()) {
    throw ConfigError("both -H and --hostfile name hosts",
                      {.operation = "launch", .advice = "Give one of them."});
  }
  options.hosts = arguments.file.empty() ? launch::parse_hosts(arguments.list)
                                         : launch::read_hostfile(arguments.file);
  options.agent = {own_program(), "launch-host"};
  options.exported = arguments.exported;
  options.patience = from_seconds(arguments.timeout);
  return options;
}

}  // namespace trireme::inline v0::cli
