// Storage: the place where checkpoints are kept, a file system or an object store.
//
// It holds folders of files. A folder is complete or absent: its last file, kManifestFile, makes it
// exist. A path is Location::path or lies below it: "DIR/step-00000500",
// "s3://BUCKET/PREFIX/latest". ResourceError: the storage is full, away or refuses; the same call
// may succeed later. One thread at a time. No LibTorch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/storage/file_system.h"

namespace trireme::inline v0::storage {

/// The last file of every folder.
inline constexpr const char* kManifestFile = "manifest.json";

/// A folder that is being written.
class Draft {
 public:
  /// Without publish(): removes the files of all processes, as far as it can, unless another draft
  /// of the folder has begun meanwhile.
  virtual ~Draft() = default;
  virtual std::unique_ptr<OutputFile> create(const std::string& name) = 0;
  /// Takes over the file `path` of this storage without sending its bytes. False if the storage
  /// cannot do so or has no such file.
  virtual bool reuse(const std::string& name, const std::string& path) = 0;
  /// Writes kManifestFile. When this returns, the folder exists and is durable with all its files.
  /// Throws ResourceError if another draft of this folder has begun meanwhile.
  virtual void publish(const std::string& manifest) = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  /// Begins the folder `path`, and removes what unfinished drafts beside it have left. A storage
  /// that can keep drafts apart does so by their `mark` (is_mark()).
  virtual std::unique_ptr<Draft> begin(const std::string& path, const std::string& mark) = 0;
  /// Adds files to a folder that another process has begun, and alone publishes or removes.
  virtual std::unique_ptr<Draft> join(const std::string& path, const std::string& mark) = 0;
  /// Opens a file to read ranges of it. Throws CheckpointError if there is no such file.
  virtual std::unique_ptr<InputFile> open(const std::string& path) = 0;
  /// Writes a small file beside the folders, in place of an older one.
  virtual void put(const std::string& path, const std::string& text) = 0;
  /// The names of the complete folders and the files in `path`, sorted; empty without a `path`.
  virtual std::vector<std::string> list(const std::string& path) = 0;
  /// Removes a file of put(), or a complete folder, which is never seen with some of its files
  /// only. Does nothing if there is none.
  virtual void remove(const std::string& path) = 0;
  /// Locks `path` for this job until the result is destroyed. Throws ConfigError naming the job
  /// that has it, or if a bucket refuses. Null: a local folder that this user may not write to.
  virtual std::shared_ptr<void> lock(const std::string& path) = 0;
  /// Whether it is a service, which may deny access.
  virtual bool is_remote() const noexcept = 0;
};

/// Folders of a file system. A draft is written under a temporary name, synced and renamed.
std::shared_ptr<Storage> folder_storage(std::shared_ptr<FileSystem> files = local_file_system());

/// A storage and a path in it.
struct Location {
  std::shared_ptr<Storage> storage;
  std::string path;
};

/// Whether `address` names a scheme ("s3://bucket/prefix"), not a path of this machine.
bool has_scheme(const std::string& address);
/// Throws ConfigError if the form of the address is wrong. Does not look at the environment.
void check_address(const std::string& address);
/// Opens "DIR", "file:///DIR" or "s3://BUCKET/PREFIX". Throws ConfigError for another scheme, or if
/// the environment lacks what the scheme needs. Connects to nothing.
Location open_location(const std::string& address);

/// checkpoint.path of the run in the folder `run` of this machine; empty if its checkpoints are in
/// RUN/checkpoint. If that folder exists, the configuration is not read: RUN/best has a copy of the
/// run's.
std::string checkpoint_path_of(const std::string& run);

}  // namespace trireme::inline v0::storage
