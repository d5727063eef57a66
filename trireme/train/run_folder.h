// RunFolder: where one run lives: config.toml, events.jsonl, loss.svg, tensorboard/ and
// checkpoint/.
//
// Choosing a folder never touches one that holds a run. Not thread safe; one process claims it, its
// workers only name it.
#pragma once

#include <string>

#include "trireme/base/config.h"

namespace trireme {
inline namespace v0 {
namespace train {

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  /// `out`, which must be new or empty; where it is empty, the next free of runs/NAME, runs/NAME-2…
  /// Makes the folder. Throws ConfigError where it holds anything, ResourceError where it cannot
  /// be made.
  static RunFolder claim(const std::string& out, const std::string& name);
  /// The same checks without making anything: for everything that must fail before a start.
  static void check_free(const std::string& out);
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
  bool has_checkpoint() const;

  /// Writes the resolved configuration, with its identity's hash on top; whole or not at all.
  void write_config(const config::Config& config) const;

 private:
  std::string path_;
};

/// Writes `text` to a temporary name beside `path`, then renames it. Throws ResourceError.
void write_whole(const std::string& path, const std::string& text);

}  // namespace train
}  // namespace v0
}  // namespace trireme
