// MappedFile: a file's bytes, read-only, through mmap. Copies share the mapping.
//
// If another process truncates the file while it is mapped, this process ends (SIGBUS), so map only
// complete files: renamed into place, or a user's data.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::inline v0::format {

class MappedFile {
 public:
  /// Throws ConfigError with the system's reason if `path` is not a readable regular file.
  explicit MappedFile(const std::string& path);
  /// The open file `descriptor`, which the caller may close afterwards. `title` names it in errors.
  MappedFile(int descriptor, std::string title);

  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(data_.get()), data_ ? size_ : 0};
  }
  std::string_view text() const noexcept {
    return {static_cast<const char*>(data_.get()), data_ ? size_ : 0};
  }
  const std::string& path() const noexcept { return path_; }

 private:
  void map(int descriptor);

  std::string path_;
  std::shared_ptr<void> data_;  // null: no bytes
  std::size_t size_ = 0;
};

}  // namespace trireme::inline v0::format
