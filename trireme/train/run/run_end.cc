#include "trireme/train/run/run_end.h"

#include <chrono>
#include <filesystem>

#include "trireme/observe/events.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::train {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);

}  // namespace

std::optional<RunEnd> run_end(const RunFolder& folder) {
  if (!std::filesystem::exists(folder.config())) return std::nullopt;
  const config::Config config =
      read_config(folder.config(), [](const char*) { return nullptr; }, {});
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
      const std::optional<RunEnd> end = run_end(folder);
      if (!end) ended.reset();
      if (end && !ended) ended = now;
      if (end) timeout = end->timeout;
    }
    return ended && now - *ended >= timeout;
  };
}

}  // namespace trireme::inline v0::train
