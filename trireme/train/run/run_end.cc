#include "trireme/train/run/run_end.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/observe/events.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::train {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);

}  // namespace

std::optional<RunEnd> run_end(const RunFolder& folder) {
  if (!std::filesystem::exists(folder.config())) return std::nullopt;
  const config::Config config = read_config(folder.config());
  const std::int64_t newest = folder.newest_step();
  if (newest == 0) return std::nullopt;
  const bool early =
      observe::read_history(folder.events()).early_stop == static_cast<double>(newest);
  if (newest < config.integer("train.steps") && !early) return std::nullopt;
  const std::chrono::duration<double> timeout(config.number("timeout"));
  return RunEnd{newest, early, std::chrono::duration_cast<Duration>(timeout)};
}

std::function<bool()> stays_ended(const RunFolder& folder) {
  return [folder, ended = std::optional<TimePoint>(), looked = std::optional<TimePoint>(),
          timeout = Duration()]() mutable {
    const TimePoint now = steady_now();
    if (!looked || now - *looked >= kLookEvery) {
      looked = now;
      try {
        const std::optional<RunEnd> end = run_end(folder);
        if (!end) ended.reset();
        if (end && !ended) ended = now;
        if (end) timeout = end->timeout;
      } catch (const ResourceError&) {  // the storage is away: the next look finds out
      }
    }
    return ended && now - *ended >= timeout;
  };
}

std::optional<int> former_ranks(const RunFolder& folder) {
  const std::optional<int> started = observe::read_history(folder.events()).ranks;
  const std::optional<std::string> wanted = try_read_file(folder.wanted_ranks());
  if (!wanted) return started;
  const config::Config config = read_config(folder.config());
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
