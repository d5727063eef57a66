// RunFolder: the state of a run in its folder: its checkpoints, its configuration, what else is
// there. RunClaim decides who may write to it. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/config/config.h"
#include "trireme/storage/folder.h"
#include "trireme/train/run/run_files.h"

namespace trireme::inline v0::train {

/// The content of a folder. Free: nothing, or files of a run that took no step. Begun: a run
/// without a complete checkpoint. Run: a run with a checkpoint. Foreign: anything else.
enum class RunState : std::uint8_t { Free, Begun, Run, Foreign };

class RunFolder : public RunFiles {
 public:
  explicit RunFolder(std::string path,
                     std::shared_ptr<storage::FileSystem> storage = storage::local_file_system())
      : RunFiles(std::move(path)), storage_(std::move(storage)) {}
  /// An existing run. Throws ConfigError if `path` has no config.toml.
  static RunFolder existing(const std::string& path);

  /// The place of its checkpoints: RUN/checkpoint, or checkpoint.path of its configuration.
  std::string checkpoint() const;
  /// Whether `place` is RUN/checkpoint by another name; whether it lies in RUN.
  bool is_own_checkpoint(const std::string& place) const;
  bool contains(const std::string& place) const;
  /// The place whose lock guards the checkpoints: RUN, or that of checkpoint.path; and the claim of
  /// `digest` on it, null if that is empty.
  storage::Location locked_place() const;
  std::shared_ptr<const storage::Claim> claim(const std::string& digest) const;
  storage::CheckpointFolder checkpoints() const;
  /// The same run with its checkpoints at `place`, before it has a configuration that says so.
  RunFolder with_checkpoints(std::string place) const;

  RunState state() const;
  /// The first name in the folder that is not of a run; empty if there is none.
  std::string foreign_name() const;
  /// The step of the newest complete checkpoint; 0 = none. Does not read `checkpoint/latest`, which
  /// may be one checkpoint behind after a crash.
  std::int64_t newest_step() const;

  /// Removes the files of a run without a checkpoint, so that it can begin again. Keeps
  /// config.toml, which write_config() replaces.
  void clear() const;
  /// Writes the resolved configuration, with the hash of its identity on top. Atomic and durable.
  void write_config(const config::Config& config) const;
  /// Writes the configuration that `from` has now in the same way, but without its checkpoint.path:
  /// the checkpoints here are in this folder.
  void copy_config(const RunFolder& from) const;
  /// A resumed run may get a configuration that its checkpoint does not fit. keep_config() puts the
  /// former one aside. Rank 0 drops that once it has loaded the checkpoint, else takes it again. If
  /// a start is killed in between, the next one takes it again.
  void keep_config() const;
  void drop_former_config() const;
  /// Whether there was one.
  bool take_former_config() const;

 private:
  /// Writes a whole configuration. Atomic and durable.
  void put(const std::string& name, const std::string& text) const;
  bool has(std::string_view name) const;

  std::string place_;  // of the checkpoints; empty: as the configuration says
  std::shared_ptr<storage::FileSystem> storage_;
};

/// If write_config() wrote the file `path` for a run with servers, and `config` was read from it
/// but has been given another parallel.sync, the file's server.* keys fall back to their defaults.
void leave_servers(config::Config& config, const std::string& path);

/// If write_config() wrote the file `path`, gives the values of `config` that were read from it
/// their original sources.
void restore_sources(config::Config& config, const std::string& path);

/// `path` without the slashes at its end.
std::string without_slashes(std::string path);

/// Writes `text` to a temporary name beside `path`, then renames it. If `path` is no regular file
/// (a pipe, a device, a link), writes into it. Throws ResourceError.
void write_whole(const std::string& path, const std::string& text);

}  // namespace trireme::inline v0::train
