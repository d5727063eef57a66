// RunFolder: where one run lives: config.toml, events.jsonl, loss.svg, tensorboard/ and
// checkpoint/. A path, and what lies there; RunClaim (run_claim.h) says who may write.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/config.h"
#include "trireme/checkpoint/storage.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// What lies in a folder. Free: nothing, or only what a start leaves that took no step. Begun: a
/// run without a complete checkpoint. Run: one with a checkpoint. Foreign: something else.
enum class RunState : std::uint8_t { Free, Begun, Run, Foreign };

class RunFolder {
 public:
  explicit RunFolder(std::string path,
                     std::shared_ptr<checkpoint::Storage> storage = checkpoint::local_storage())
      : path_(std::move(path)), storage_(std::move(storage)) {}
  /// An existing run. Throws ConfigError where `path` holds no config.toml.
  static RunFolder existing(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  std::string config() const { return path_ + "/config.toml"; }
  std::string events() const { return path_ + "/events.jsonl"; }
  std::string plot() const { return path_ + "/loss.svg"; }
  std::string passes() const { return path_ + "/passes.jsonl"; }  // of a traced pipeline
  std::string passes_picture() const { return path_ + "/passes.svg"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string checkpoint() const { return path_ + "/checkpoint"; }

  RunState state() const;
  /// The first name in the folder that no start has left there; empty where there is none.
  std::string foreign_name() const;
  /// The newest complete checkpoint's step; 0 where there is none. `checkpoint/latest` is a hint
  /// for people, and is not asked: a crash may leave it one behind.
  std::int64_t newest_step() const;
  bool has_checkpoint() const { return newest_step() > 0; }

  /// Removes what a run without a checkpoint has left, so that it can begin again: all but its
  /// configuration, which write_config() replaces.
  void clear() const;
  /// Writes the resolved configuration, with its identity's hash on top; whole or not at all, and
  /// on the disk when it returns.
  void write_config(const config::Config& config) const;

 private:
  bool has(std::string_view name) const;

  std::string path_;
  std::shared_ptr<checkpoint::Storage> storage_;
};

/// Gives the values of `config` that were read from the file `path`, where write_config() has
/// written that, the sources that they had then.
void restore_sources(config::Config& config, const std::string& path);

/// Writes `text` to a temporary name beside `path`, then renames it. Throws ResourceError.
void write_whole(const std::string& path, const std::string& text);

}  // namespace train
}  // namespace v0
}  // namespace trireme
