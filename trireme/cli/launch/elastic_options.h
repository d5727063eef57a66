// The options of elastic jobs that `train`, `plan` and `launch` share.
#pragma once

#include <string>
#include <utility>

#include "trireme/cli/command.h"

namespace trireme::inline v0::cli {

struct ElasticArguments {
  std::string& range;
  int &spares, &restarts;
  std::string& store;
};
void add_elastic_options(Command& command, ElasticArguments arguments);
/// "2:8", or "4" for both. Throws ConfigError.
std::pair<int, int> parse_elastic(const std::string& range);

}  // namespace trireme::inline v0::cli
