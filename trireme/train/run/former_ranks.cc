#include "trireme/train/run/former_ranks.h"

#include <cstdlib>
#include <string>

#include "trireme/base/file.h"
#include "trireme/observe/events.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::train {

std::optional<int> former_ranks(const RunFolder& folder) {
  const std::optional<int> started = observe::read_history(folder.events()).ranks;
  const std::optional<std::string> wanted = try_read_file(folder.wanted_ranks());
  if (!wanted) return started;
  const config::Config config =
      read_config(folder.config(), [](const char*) { return nullptr; }, {});
  const auto number = [&](const char* key) { return static_cast<int>(config.integer(key)); };
  const auto bound = [&](const char* key) {  // 0: the number at the start
    const auto value = number(key);
    return value > 0 ? value : started.value_or(0);
  };
  const int ranks = std::atoi(wanted->c_str());
  const int multiple = ranks_of_a_copy({.sync = config.text("parallel.sync"),
                                        .pipeline = number("parallel.pipeline"),
                                        .context = number("parallel.context"),
                                        .expert = number("parallel.expert"),
                                        .tensor = number("parallel.tensor"),
                                        .shard = number("parallel.shard")});
  // The launcher has refused any other number.
  const bool taken = ranks > 0 && ranks >= bound("elastic.min") && ranks <= bound("elastic.max") &&
                     ranks % multiple == 0;
  return taken ? ranks : started;
}

}  // namespace trireme::inline v0::train
