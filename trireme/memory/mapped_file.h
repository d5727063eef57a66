// MappedFile: allocates regions of a mapped file. The file is unlinked as soon as it is open, so
// nothing is left behind. Thread safe.
//
// Growing the file allocates disk blocks: a full disk is a ResourceError then, not a SIGBUS later.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace trireme::inline v0::memory {

class MappedFile {
 public:
  struct Region {
    void* data = nullptr;  // mapped; page aligned
    off_t offset = 0;      // in the file
    std::size_t bytes = 0;
  };

  struct Use {
    const char* key;      // the configuration's key that names the folder
    const char* prefix;   // of the file's name
    const char* content;  // what the file holds, for messages
  };
  /// A file in `folder`. Throws ConfigError if `folder` is missing or cannot be written to, and
  /// ResourceError if no file can be made.
  MappedFile(std::string folder, const Use& use);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  /// A region of at least `bytes` bytes (`bytes` > 0): one of about that size that was given back,
  /// a new one at the end of the file or, if the file cannot grow, a larger one that was given
  /// back. Throws ResourceError if there is none.
  Region take(std::size_t bytes);
  void give_back(const Region& region) noexcept;
  /// Writes through the file and not through the mapping, so that the pages do not count as this
  /// process's memory. Returns errno, or 0.
  int write(const Region& region, const void* data, std::size_t bytes) const noexcept;
  /// Brings the region's pages into this process's memory now, not at the first access.
  void fetch(const Region& region) const noexcept;
  /// Removes the pages from this process's memory. The content stays in the file.
  void drop_pages(const Region& region) const noexcept;

  std::int64_t bytes() const;
  [[noreturn]] void refuse(const std::string& what, int reason) const;

 private:
  const std::string folder_;
  const Use use_;
  int file_ = -1;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::multimap<std::size_t, Region> free_;  // by bytes
  std::map<off_t, Region> mapped_;           // all regions
};

}  // namespace trireme::inline v0::memory
