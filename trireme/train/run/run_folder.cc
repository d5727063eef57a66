#include "trireme/train/run/run_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/sha256.h"
#include "trireme/observe/folder_lock.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigTitle =
    "# The resolved configuration of this run; each value with where it came from.\n";
constexpr const char* kConfig = "config.toml";
constexpr const char* kEvents = "events.jsonl";
constexpr const char* kUnfinished = ".new";  // while a file is written
constexpr const char* kFormer = ".former";   // the configuration before a resumed run's
constexpr std::array<std::string_view, 12> kOutputs = {
    kEvents,      "loss.svg",    "staleness.svg", "passes.jsonl",
    "passes.svg", "tensorboard", "checkpoint",    "evaluator.jsonl",
    "best",       "evaluating",  "wanted_ranks",  "worker_spec"};

// Files that a run writes after its configuration.
bool is_output(std::string_view name) {
  if (name.ends_with(kUnfinished)) name.remove_suffix(std::strlen(kUnfinished));
  return std::find(kOutputs.begin(), kOutputs.end(), name) != kOutputs.end();
}

// Files that exist before that. NFS keeps ".nfs..." for a process that has a removed file open.
bool is_start(std::string_view name) {
  return name == kConfig || name == std::string(kConfig) + kUnfinished ||
         name == std::string(kConfig) + kFormer || name.starts_with(observe::kLockFile) ||
         name.starts_with(".nfs");
}

std::string from_root(const std::string& path) {
  std::error_code missing;
  return without_slashes(fs::absolute(path, missing).lexically_normal().string());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

RunFolder RunFolder::existing(const std::string& path) {
  RunFolder folder(without_slashes(path));
  if (!fs::exists(folder.config())) {
    throw ConfigError(folder.path() + " is not the folder of a run: it has no config.toml",
                      {.operation = "run folder",
                       .advice = "Give the folder that `trireme train` printed, such as "
                                 "runs/gpt-nano."});
  }
  return folder;
}

std::string RunFolder::checkpoint() const {
  if (!place_.empty()) return place_;
  const std::string elsewhere = storage::checkpoint_path_of(path());
  return elsewhere.empty() ? own_checkpoint() : elsewhere;
}

bool RunFolder::is_own_checkpoint(const std::string& place) const {
  return !path().empty() && !storage::has_scheme(place) &&
         from_root(place) == from_root(own_checkpoint());
}

bool RunFolder::contains(const std::string& place) const {
  return !path().empty() && !storage::has_scheme(place) &&
         from_root(place).starts_with(from_root(path()) + "/");
}

storage::Location RunFolder::locked_place() const {
  const std::string place = checkpoint();
  if (is_own_checkpoint(place)) return {storage::folder_storage(storage_), path()};
  return storage::open_location(place);
}

std::shared_ptr<const storage::Claim> RunFolder::claim(const std::string& digest) const {
  return digest.empty() ? nullptr : std::make_shared<const storage::Claim>(locked_place(), digest);
}

storage::CheckpointFolder RunFolder::checkpoints() const {
  const std::string place = checkpoint();
  if (place == own_checkpoint()) return {storage_, place};
  return storage::CheckpointFolder(storage::open_location(place));
}

RunFolder RunFolder::with_checkpoints(std::string place) const {
  RunFolder folder = *this;
  folder.place_ = std::move(place);
  return folder;
}

std::int64_t RunFolder::newest_step() const {
  const auto steps = checkpoints().steps();
  return steps.empty() ? 0 : steps.back();
}

std::string RunFolder::foreign_name() const {
  const bool begun = has(kConfig);
  for (const std::string& name : storage_->list(path()))
    if (!is_start(name) && !(begun && is_output(name))) return name;
  return {};
}

bool RunFolder::has(std::string_view name) const {
  const std::vector<std::string> names = storage_->list(path());
  return std::find(names.begin(), names.end(), name) != names.end();
}

RunState RunFolder::state() const {
  if (newest_step() > 0) return RunState::Run;
  const bool clean = foreign_name().empty();
  // A run writes config.toml first. Without it, other files are not of a run.
  if (!has(kConfig)) return clean ? RunState::Free : RunState::Foreign;
  // A configuration that a user has put there does not count as Free.
  const bool ours = text_of(*storage_->open(config())).starts_with(kConfigTitle);
  const bool stepped =
      has(kEvents) &&
      text_of(*storage_->open(events())).find("{\"event\":\"step\"") != std::string::npos;
  return ours && clean && !stepped ? RunState::Free : RunState::Begun;
}

void RunFolder::clear() const {
  for (const std::string& name : storage_->list(path()))
    if (is_output(name) || (is_start(name) && name.starts_with(kConfig) && name != kConfig))
      storage_->remove(path() + "/" + name);
}

void RunFolder::write_config(const config::Config& config) const {
  const std::string identity = config.identity();
  put(kConfig, std::string(kConfigTitle) + "# identity " +
                   sha256_hex(std::as_bytes(std::span(identity))) + "\n\n" + config.to_toml());
}

void RunFolder::put(const std::string& name, const std::string& text) const {
  const std::string next = config() + kUnfinished;
  try {
    const auto file = storage_->create(next);
    file->write(std::as_bytes(std::span(text)));
    file->finish();
    storage_->rename(next, path() + "/" + name);
    storage_->sync(path());
  } catch (const ResourceError&) {
    storage_->remove(next);
    throw;
  }
}

void RunFolder::copy_config(const RunFolder& from) const {
  constexpr const char* kPath = "checkpoint.path";
  if (!config::text_in_file(from.config(), kPath).value_or("").empty()) {
    config::Config config = read_config(from.config());
    restore_sources(config, from.config());
    config.assign(kPath, std::string(), "copied from " + from.path());
    return write_config(config);
  }
  put(kConfig, text_of(*storage_->open(from.config())));
}

void RunFolder::keep_config() const {
  if (const auto text = try_read_file(config())) put(std::string(kConfig) + kFormer, *text);
}

void RunFolder::drop_former_config() const { storage_->remove(config() + kFormer); }

bool RunFolder::take_former_config() const {
  if (!has(std::string(kConfig) + kFormer)) return false;
  storage_->rename(config() + kFormer, config());
  storage_->sync(path());
  return true;
}

void leave_servers(config::Config& config, const std::string& path) {
  if (!try_read_file(path).value_or("").starts_with(kConfigTitle)) return;
  const std::string file = path.substr(path.rfind('/') + 1) + ":";
  const auto is_of_file = [&](const std::string& key) {
    return config.source(key).starts_with(file);
  };
  if (parallel::is_served(config.text("parallel.sync")) || is_of_file("parallel.sync")) return;
  for (const config::Key& key : config.schema().keys())
    if (key.name.starts_with("server.") && is_of_file(key.name))
      config.assign(key.name, key.fallback, "default");
}

// Both texts have their keys in the same order, so each line is searched after the one before it
// and within its table. A line that a user has changed is not found and keeps its source.
void restore_sources(config::Config& config, const std::string& path) {
  const std::string text = try_read_file(path).value_or("");
  if (!text.starts_with(kConfigTitle)) return;
  const std::vector<std::string> saved = lines_of(text);
  config::Config named = config;  // its lines end with their key instead of their source
  for (const config::Key& key : config.schema().keys())
    named.assign(key.name, config.value(key.name), key.name);
  const std::string from = path.substr(path.rfind('/') + 1) + ":";
  auto at = saved.begin();
  for (const std::string& line : lines_of(named.to_toml())) {
    if (line.starts_with("[")) {
      at = std::find(at, saved.end(), line);
      if (at == saved.end()) return;
    }
    const auto comment = line.rfind("# ");
    if (comment == std::string::npos) continue;
    const std::string left = line.substr(0, comment + 2), key = line.substr(comment + 2);
    const auto table_end = std::find_if(at == saved.end() ? at : at + 1, saved.end(),
                                        [](const auto& one) { return one.starts_with("["); });
    const auto found =
        std::find_if(at, table_end, [&](const auto& one) { return one.starts_with(left); });
    if (found == table_end) continue;
    at = found;
    if (config.source(key).starts_with(from))
      config.assign(key, config.value(key), found->substr(left.size()));
  }
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void write_whole(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::file_status before = fs::symlink_status(path, error);
  const bool in_place = fs::exists(before) && !fs::is_regular_file(before);
  const std::string next = in_place ? path : path + kUnfinished;
  {
    std::ofstream file(next, std::ios::binary | std::ios::trunc);
    file << text;
    if (!file.flush()) {
      const std::string reason = std::strerror(errno);
      if (!in_place) fs::remove(next, error);
      throw ResourceError("cannot write " + next + ": " + reason,
                          {.operation = "run folder", .advice = "Free some space there."});
    }
  }
  if (!in_place) fs::rename(next, path, error);
  if (error) {
    throw ResourceError("cannot write " + path + ": " + error.message(),
                        {.operation = "run folder"});
  }
}

}  // namespace trireme::inline v0::train
