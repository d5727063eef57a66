#include "trireme/sync/offload.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/memory/offload_folder.h"

namespace trireme::inline v0::parallel {
namespace {

[[noreturn]] void refuse_offload(const std::string& folder, const std::string& what, int reason) {
  throw ResourceError(
      what + " in " + folder + ": " + std::strerror(reason),
      {.operation = "memory.offload",
       .advice = "Name a folder on a local disk with room for the optimizer's state "
                 "and the master weights (`trireme plan` prints them)."});
}

}  // namespace

MappedState::MappedState(std::string folder) : folder_(std::move(folder)) {
  memory::check_offload_folder("memory.offload", folder_);
  std::string name = folder_ + "/trireme-state-XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) refuse_offload(folder_, "no file can be made", errno);
  ::unlink(name.c_str());
}

MappedState::~MappedState() {
  for (const Mapping& mapping : mappings_) ::munmap(mapping.data, mapping.bytes);
  ::close(file_);
}

void MappedState::take(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t size = storage->nbytes();
  if (size == 0) return;
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = (size + page - 1) / page * page;
  // Allocates disk space now, so that a full disk is an error here and not a SIGBUS later.
  const int reason =
      ::posix_fallocate(file_, static_cast<off_t>(bytes_), static_cast<off_t>(bytes));
  if (reason != 0)
    refuse_offload(folder_, std::to_string(bytes) + " more bytes cannot be had", reason);
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(bytes_));
  if (data == MAP_FAILED) refuse_offload(folder_, "the state cannot be mapped", errno);
  mappings_.push_back({data, bytes});
  bytes_ += bytes;
  std::memcpy(data, storage->data(), size);
  storage->set_data_ptr_noswap(at::DataPtr(data, at::Device(at::kCPU)));
}

}  // namespace trireme::inline v0::parallel
