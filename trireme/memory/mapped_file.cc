#include "trireme/memory/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/memory/offload_folder.h"

namespace trireme::inline v0::memory {
namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

MappedFile::MappedFile(std::string folder, const Use& use) : folder_(std::move(folder)), use_(use) {
  check_offload_folder(use_.key, folder_);
  std::string name = folder_ + "/" + use_.prefix + "-XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) refuse("no file can be made", errno);
  ::unlink(name.c_str());
}

MappedFile::~MappedFile() {
  for (const auto& [offset, region] : mapped_) ::munmap(region.data, region.bytes);
  if (file_ >= 0) ::close(file_);
}

MappedFile::Region MappedFile::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t page = page_bytes();
  const std::size_t whole = (bytes + page - 1) / page * page;
  const auto found = free_.lower_bound(whole);
  const auto reused = [&] {
    const Region region = found->second;
    free_.erase(found);
    return region;
  };
  // Much larger regions are left for larger tensors, as long as the file can grow.
  if (found != free_.end() && found->first <= whole + whole / 8) return reused();
  Region region{.offset = static_cast<off_t>(bytes_), .bytes = whole};
  int reason = EINTR;  // a pending signal interrupts the call on tmpfs
  while (reason == EINTR)
    reason = ::posix_fallocate(file_, region.offset, static_cast<off_t>(whole));
  if (reason != 0 && found != free_.end()) return reused();
  if (reason != 0)
    refuse("the file cannot grow by " + bytes_text(static_cast<double>(whole)), reason);
  region.data = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file_, region.offset);
  if (region.data == MAP_FAILED) refuse("the file cannot be mapped", errno);
  bytes_ += whole;
  mapped_.emplace(region.offset, region);
  return region;
}

void MappedFile::give_back(const Region& region) noexcept {
  const std::lock_guard lock(mutex_);
  free_.emplace(region.bytes, region);
}

int MappedFile::write(const Region& region, const void* data, std::size_t bytes) const noexcept {
  const auto* from = static_cast<const char*>(data);
  off_t at = region.offset;
  while (bytes > 0) {
    const ssize_t wrote = ::pwrite(file_, from, bytes, at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    from += wrote;
    at += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
  return 0;
}

void MappedFile::fetch(const Region& region) const noexcept {
#ifdef MADV_POPULATE_READ
  if (::madvise(region.data, region.bytes, MADV_POPULATE_READ) == 0) return;
#endif
  // Before Linux 5.14: touch every page.
  const auto* bytes = static_cast<const volatile char*>(region.data);
  for (std::size_t at = 0; at < region.bytes; at += page_bytes()) (void)bytes[at];
}

void MappedFile::drop_pages(const Region& region) const noexcept {
  ::madvise(region.data, region.bytes, MADV_DONTNEED);
}

std::int64_t MappedFile::bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(bytes_);
}

void MappedFile::refuse(const std::string& what, int reason) const {
  throw ResourceError(what + " in " + folder_ + ": " + std::strerror(reason),
                      {.operation = use_.key,
                       .advice = std::string("Name a folder on a local disk with room for ") +
                                 use_.content + " (`trireme plan` prints their size)."});
}

}  // namespace trireme::inline v0::memory
