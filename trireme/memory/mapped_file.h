// MappedFile: parts of a file in this process's address space, given out and taken back. The file
// has no name as soon as it is open, so nothing is left. Thread safe.
//
// Its blocks are taken when it grows: a full disk is a ResourceError then, and no SIGBUS later.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace trireme {
inline namespace v0 {
namespace memory {

class MappedFile {
 public:
  struct Region {
    void* data = nullptr;  // mapped; on a page's beginning
    off_t offset = 0;      // in the file
    std::size_t bytes = 0;
  };

  /// A file in `folder`. ResourceError where none can be made.
  explicit MappedFile(std::string folder);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  /// At least so many bytes: a part that was given back, or the file grows (ResourceError).
  Region take(std::size_t bytes);
  void give_back(const Region& region) noexcept;
  /// Into the region, past the mapping, so that its pages are the system's and not this process's.
  /// errno, or 0.
  int write(const Region& region, const void* data, std::size_t bytes) const noexcept;
  /// Its pages become this process's: what is not in memory is read now and not at the first touch.
  void fetch(const Region& region) const noexcept;
  /// They are the system's again. The content stays.
  void drop_pages(const Region& region) const noexcept;

  std::int64_t bytes() const;
  [[noreturn]] void refuse(const std::string& what, int reason) const;

 private:
  const std::string folder_;
  int file_ = -1;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::multimap<std::size_t, Region> free_;  // by bytes
  std::map<off_t, Region> mapped_;           // all there are
};

}  // namespace memory
}  // namespace v0
}  // namespace trireme
