#include "trireme/train/run/resume_changes.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/storage/folder.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0::train {
namespace {

constexpr const char* kRecord = ", changed after step ";
// The identity has the data's hash, not its path.
constexpr const char* kDataLine = "data";
constexpr const char* kDataKey = "data.path";
constexpr std::string_view kNothing = "nothing";  // the value of a key outside the identity

std::string key_of_line(const std::string& line) { return line == kDataLine ? kDataKey : line; }

// Parses lines "KEY = value".
std::map<std::string, std::string> values_of(const std::string& identity) {
  std::map<std::string, std::string> values;
  std::istringstream in(identity);
  for (std::string line; std::getline(in, line);)
    if (const auto equals = line.find(" = "); equals != std::string::npos)
      values[line.substr(0, equals)] = line.substr(equals + 3);
  return values;
}

// The step of a recorded change; -1 if the source has none.
std::int64_t recorded_step(const std::string& source) {
  const auto at = source.rfind(kRecord);
  if (at == std::string::npos) return -1;
  std::int64_t step = -1;
  std::istringstream(source.substr(at + std::string(kRecord).size())) >> step;
  return step;
}

std::string identity_of_checkpoint(const RunFolder& folder, std::int64_t step) {
  const storage::CheckpointFolder checkpoints = folder.checkpoints();
  try {
    return checkpoints.read_manifest(step).identity;
  } catch (const CheckpointError&) {
    return checkpoints.verify(step).identity;  // its error names an older intact checkpoint
  }
}

// The configuration of the run; nullopt if it is not readable.
std::optional<config::Config> config_before(const RunFolder& folder) {
  if (!std::filesystem::exists(folder.config())) return std::nullopt;
  try {
    return read_config(folder.config());
  } catch (const ConfigError&) {
    return std::nullopt;  // then only the checkpoint's identity is compared
  }
}

std::vector<Change> differences(const std::optional<config::Config>& before,
                                const config::Config& now) {
  std::vector<Change> changes;
  if (!before) return changes;
  for (const config::Key& key : now.schema().keys()) {
    const config::Key* const old = before->schema().find(key.name);
    if (old == nullptr || before->value(key.name) == now.value(key.name)) continue;
    changes.push_back({key.name, config::to_toml(before->value(key.name)),
                       config::to_toml(now.value(key.name)), now.source(key.name)});
  }
  return changes;
}

// The keys whose lines differ, with their values in the checkpoint and now.
std::vector<Change> identity_differences(const std::string& saved, const std::string& own,
                                         const std::vector<Change>& known,
                                         const config::Config& config) {
  const auto before = values_of(saved), now = values_of(own);
  std::map<std::string, Change> found;
  const auto compare = [&](const std::string& line) {
    const auto value = [&](const auto& values) {
      const auto at = values.find(line);
      return at == values.end() ? std::string(kNothing) : at->second;
    };
    if (value(before) == value(now)) return;
    const std::string key = key_of_line(line);
    Change change{key, value(before), value(now), ""};
    if (config.schema().find(key) != nullptr) change.source = config.source(key);
    if (key == kDataKey) {  // its line holds a hash
      change.before = config::to_toml(config.value(key));
      change.now = change.before + " with other content";
    }
    for (const Change& one : known)
      if (one.key == key) change = one;
    found.emplace(key, change);
  };
  for (const auto& [line, value] : before) compare(line);
  for (const auto& [line, value] : now) compare(line);
  std::vector<Change> result;
  for (const auto& [key, change] : found) result.push_back(change);
  return result;
}

[[noreturn]] void refuse_changes(const RunFolder& folder, const std::vector<Change>& changes) {
  // Other keys have kept their values, and only decide bits because these have changed.
  const auto has_changed = [](const Change& one) {
    return one.before != kNothing && one.now != kNothing;
  };
  const bool some = std::any_of(changes.begin(), changes.end(), has_changed);
  std::vector<std::string> differing;
  std::string options;
  for (const Change& change : changes) {
    if (!some || has_changed(change))
      differing.push_back(change.key + " = " + change.before + ", which is now " + change.now);
    options += " --changed " + change.key;
  }
  throw CheckpointError(folder.path() + " was trained with " + joined(differing),
                        {.operation = "resume",
                         .advice = "Give the old values, or start another run; to go on with the "
                                   "new ones on purpose, add" +
                                   options + "."});
}

}  // namespace

observe::Event event_of(const Change& change, long step) {
  return observe::Event("changed")
      .set("step", step)
      .set("key", change.key)
      .set("before", change.before)
      .set("now", change.now)
      .set("source", change.source);
}

CheckpointerOptions checkpoint_options(const Settings& settings, const std::string& data_hash,
                                       std::vector<std::string> changed,
                                       std::shared_ptr<const storage::Claim> claim) {
  CheckpointerOptions options = settings.checkpoints;
  options.identity += kDataLine + (" = " + data_hash + "\n");
  options.changed = std::move(changed);
  options.lock = false;
  options.claim = std::move(claim);
  return options;
}

std::vector<Change> check_changes(config::Config& config, const std::string& data_hash,
                                  const RunFolder& folder,
                                  const std::vector<std::string>& on_purpose) {
  for (const std::string& key : on_purpose) config.schema().at(key, "--changed");
  const std::int64_t step = folder.newest_step();
  const std::string saved = identity_of_checkpoint(folder, step);
  std::vector<Change> changes = differences(config_before(folder), config), refused;
  if (saved.empty()) return changes;
  const std::string own = checkpoint_options(Settings(config), data_hash).identity;
  for (Change& change : identity_differences(saved, own, changes, config)) {
    const bool again = recorded_step(change.source) >= step;  // the run ended before its next save
    const bool meant =
        std::find(on_purpose.begin(), on_purpose.end(), change.key) != on_purpose.end();
    if (!again && !meant) {
      refused.push_back(change);
      continue;
    }
    if (again || config.schema().find(change.key) == nullptr) continue;
    config.assign(change.key, config.value(change.key),
                  change.source + kRecord + std::to_string(step) + " (was " + change.before + ")");
    const auto named = [&](const Change& one) { return one.key == change.key; };
    if (std::none_of(changes.begin(), changes.end(), named)) changes.push_back(change);
  }
  if (!refused.empty()) refuse_changes(folder, refused);
  return changes;
}

std::vector<std::string> recorded_changes(const RunFolder& folder) {
  config::Config config = read_config(folder.config());
  restore_sources(config, folder.config());
  std::vector<std::string> lines;
  for (const config::Key& key : config.schema().keys())
    if (recorded_step(config.source(key.name)) >= 0)
      lines.push_back(key.name == kDataKey ? kDataLine : key.name);
  return lines;
}

void ChangedInput::restored(const std::string& metadata) {
  batches_.seek(saved_count(nlohmann::json::parse(metadata, nullptr, false), "position"));
}

void check_counts(std::int64_t step, std::int64_t batches, const std::string& training_metadata) {
  const std::int64_t updates =
      saved_count(nlohmann::json::parse(training_metadata), "optimizer_steps");
  if (batches == step && updates <= step) return;
  throw CheckpointError("the checkpoint of step " + std::to_string(step) + " says that " +
                            std::to_string(batches) + " batches were read and " +
                            std::to_string(updates) + " updates made",
                        {.operation = "resume",
                         .advice = "It was not written by this program: remove its folder to "
                                   "resume from an older one, or start anew."});
}

}  // namespace trireme::inline v0::train
