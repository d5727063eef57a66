// Storage: the place where checkpoints are kept, a file system or an object store.
//
// It holds folders of files. A folder is complete or absent: its last file, kManifestFile, makes it
// exist. Paths are those of the storage, without a scheme. ResourceError: the storage is full, away
// or refuses; the same call may succeed later. Methods are called by one thread at a time, which
// need not always be the same one. No LibTorch.
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
  /// Without publish(): removes what was written, by all processes, as far as it can, unless another draft of
  /// the folder was begun meanwhile.
  virtual ~Draft() = default;
  virtual std::unique_ptr<OutputFile> create(const std::string& name) = 0;
  /// Takes over the file `path` of this storage without sending its bytes. False if the storage
  /// cannot, or has no such file.
  virtual bool reuse(const std::string& name, const std::string& path) = 0;
  /// Writes kManifestFile. The folder exists, and is durable with all its files, when this returns. Throws
  /// ResourceError if another draft of this folder was begun meanwhile.
  virtual void publish(const std::string& manifest) = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  /// Begins the folder `path`, and removes what unfinished drafts beside it have left. Drafts with other
  /// marks (words of letters) do not mix their files, if the storage can keep them apart.
  virtual std::unique_ptr<Draft> begin(const std::string& path, const std::string& mark) = 0;
  /// For files that another process writes into the folder that begin() has begun elsewhere, which
  /// alone removes or publishes them.
  virtual std::unique_ptr<Draft> join(const std::string& path, const std::string& mark) = 0;
  /// A file to read ranges of; nothing is read yet. Throws CheckpointError if there is no such file,
  /// ResourceError.
  virtual std::unique_ptr<InputFile> open(const std::string& path) = 0;
  /// Writes a small file beside the folders, in place of an older one.
  virtual void put(const std::string& path, const std::string& text) = 0;
  /// The names of the complete folders and of the files in `path`, sorted; empty if there is no
  /// `path`.
  virtual std::vector<std::string> list(const std::string& path) = 0;
  /// Removes a complete folder, at no moment of which it is there with a part of its files, or a file
  /// of put(). Does nothing if there is none.
  virtual void remove(const std::string& path) = 0;
  /// Locks `path` for this job until the result is destroyed. Throws ConfigError naming the job that
  /// has it, or if this user may not write there. Null: a local folder that is read-only.
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
/// Throws ConfigError if open_location() cannot know the address, whatever the environment has.
void check_address(const std::string& address);
/// Opens "DIR", "file:///DIR" or "s3://BUCKET/PREFIX". Throws ConfigError for another scheme, or if
/// the environment lacks what the scheme needs. Connects to nothing.
Location open_location(const std::string& address);

/// checkpoint.path of the run in the folder `run` of this machine; empty if its checkpoints are in
/// RUN/checkpoint. A folder RUN/checkpoint decides: RUN/best has one beside a copy of the run's
/// configuration.
std::string checkpoint_path_of(const std::string& run);

}  // namespace trireme::inline v0::storage
