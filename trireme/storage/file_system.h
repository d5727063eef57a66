// FileSystem: the file system operations of checkpoints, as an interface so that tests can make
// them fail. Failures throw ResourceError with the system's reason. Methods are called by one
// thread at a time. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::inline v0::storage {

class InputFile {
 public:
  virtual ~InputFile() = default;
  virtual std::int64_t size() const noexcept = 0;
  /// Fills `to` with the bytes from `at` on. Throws CheckpointError if the file lacks them,
  /// ResourceError if the disk or the storage fails.
  virtual void read(std::int64_t at, std::span<std::byte> to) = 0;
};

/// The whole content of a small file.
std::string text_of(InputFile& file);

class OutputFile {
 public:
  virtual ~OutputFile() = default;  // without finish(): the content is undefined
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// The content is on the disk when this returns.
  virtual void finish() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// A new, empty file; an old one of that name is truncated.
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  /// Throws CheckpointError if there is no readable file, ResourceError if descriptors or memory
  /// are short or the file system does not answer.
  virtual std::unique_ptr<InputFile> open(const std::string& path) = 0;
  /// Makes the folder and its parents unless it exists. Their names are on the disk afterwards.
  virtual void make_directory(const std::string& path) = 0;
  /// Atomic within a folder; replaces a file. See renamed().
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Gives a file a second, new name. False if there is no file `from` or it cannot be linked.
  virtual bool link(const std::string& from, const std::string& to) = 0;
  /// Removes a file, or a folder with its content; does nothing if there is none.
  virtual void remove(const std::string& path) = 0;
  /// The names in a folder, sorted; empty if there is no folder.
  virtual std::vector<std::string> list(const std::string& path) = 0;
  /// The folder's names are on the disk when this returns.
  virtual void sync(const std::string& directory) = 0;
  /// Locks the folder for this job until the result is destroyed (observe/folder_lock.h), and makes
  /// it if it is missing. Throws ConfigError naming the job that has it. Null if this user may not
  /// write into it.
  virtual std::shared_ptr<void> lock(const std::string& directory) = 0;
};

std::shared_ptr<FileSystem> local_file_system();

/// Calls `rename`, which returns 0 or an errno, and returns its result. Over NFS the reply to a
/// rename that was done may be lost. The client then asks again and gets ENOENT (a folder:
/// ENOTEMPTY or EEXIST), although the file has its new name. Such a rename counts as done (0).
int renamed(const std::string& from, const std::string& to, const std::function<int()>& rename);

}  // namespace trireme::inline v0::storage
