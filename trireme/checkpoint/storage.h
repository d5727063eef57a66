// Storage: what checkpoints need of a file system, so that tests can make it fail.
//
// The local one syncs what it says it syncs. A failure throws ResourceError with the system's
// reason. Methods are called by one thread at a time. No LibTorch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/format/mapped_file.h"

namespace trireme {
inline namespace v0 {
namespace checkpoint {

class OutputFile {
 public:
  virtual ~OutputFile() = default;  // without finish(): closed, content undefined
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// The content is on the disk when this returns.
  virtual void finish() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  /// A new, empty file; an old one of that name is cut.
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  /// Throws CheckpointError where there is no readable file.
  virtual format::MappedFile map(const std::string& path) = 0;
  /// With its parents, whose names are on the disk when this returns; an existing folder is fine.
  virtual void make_directory(const std::string& path) = 0;
  /// Atomic within a folder; replaces a file.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// A file, or a folder with what is in it; fine where there is none.
  virtual void remove(const std::string& path) = 0;
  /// The names in a folder, sorted; none where there is no folder.
  virtual std::vector<std::string> list(const std::string& path) = 0;
  /// The folder's names are on the disk when this returns.
  virtual void sync(const std::string& directory) = 0;
  /// Makes the folder this job's until the result is gone (observe/folder_lock.h). ConfigError
  /// names who has it; null where this user cannot write into it anyway.
  virtual std::shared_ptr<void> lock(const std::string& directory) = 0;
};

std::shared_ptr<Storage> local_storage();

}  // namespace checkpoint
}  // namespace v0
}  // namespace trireme
