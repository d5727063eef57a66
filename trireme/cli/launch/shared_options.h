// Options that the commands that start processes share: of elastic jobs, and of several hosts (-H,
// --hostfile, --host-timeout, -x).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/launch/launch.h"

namespace trireme::inline v0::cli {

struct ElasticArguments {
  std::string& range;
  int &spares, &restarts;
  std::string& store;
};
void add_elastic_options(Command& command, ElasticArguments arguments);
/// --multiple and --stages of an elastic job whose configuration the command does not know.
void add_copy_options(Command& command, int& multiple, int& stages);
/// "2:8", or "4" for both. Throws ConfigError.
std::pair<int, int> parse_elastic(const std::string& range);

struct HostArguments {
  std::string list, file;
  std::vector<std::string> exported;
  double timeout = 30;  // seconds
  bool empty() const noexcept { return list.empty() && file.empty(); }
};
void add_host_options(Command& command, HostArguments& arguments);

/// Empty if no hosts are given. Throws ConfigError.
launch::HostOptions host_options(const HostArguments& arguments);

}  // namespace trireme::inline v0::cli
