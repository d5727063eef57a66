// MappedFile: a file's bytes, read-only, through mmap: nothing is copied until it is looked at.
//
// Owns the mapping; movable. A file that another process cuts short while it is mapped ends the
// process (SIGBUS), so only files that are complete are mapped: renamed into place, or a user's
// data.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace format {

class MappedFile {
 public:
  /// Throws ConfigError with the system's reason where `path` is no readable regular file.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(data_), size_};
  }
  std::string_view text() const noexcept { return {static_cast<const char*>(data_), size_}; }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace format
}  // namespace v0
}  // namespace trireme
