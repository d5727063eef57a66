// The options of commands that start processes on several hosts: -H, --hostfile, --host-timeout, -x.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/launch/launch.h"

namespace trireme::inline v0::cli {

struct HostArguments {
  std::string list, file;
  std::vector<std::string> exported;
  double timeout = 30;  // seconds
  bool empty() const noexcept { return list.empty() && file.empty(); }
};
void add_host_options(Command& command, HostArguments& arguments);

/// Without hosts if none are given. Throws ConfigError.
launch::HostOptions host_options(const HostArguments& arguments);

}  // namespace trireme::inline v0::cli
