#include "trireme/format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/descriptor.h"
#include "trireme/base/refuse.h"

namespace trireme::inline v0::format {
namespace {

[[noreturn]] void cannot_read(const std::string& path, const std::string& reason) {
  refuse("open", "cannot read " + path + ": " + reason, "Check the path and its permissions.");
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a named pipe without a writer must not block; it is refused below.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) cannot_read(path, std::strerror(errno));
  map(file.get());
}

MappedFile::MappedFile(int descriptor, std::string title) : path_(std::move(title)) {
  map(descriptor);
}

void MappedFile::map(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) cannot_read(path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) cannot_read(path_, "not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses an empty range
  void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) cannot_read(path_, std::strerror(errno));
  data_ = {data, [size = size_](void* mapped) { ::munmap(mapped, size); }};
}

}  // namespace trireme::inline v0::format
