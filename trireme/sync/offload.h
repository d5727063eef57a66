// MappedState: keeps optimizer state and master weights in a mapped file instead of process memory.
// The operating system writes pages out when memory is short, and reads them back when an update
// needs them. One file per rank, unlinked as soon as it is open, so no file is left behind.
//
// Changes no bit of the values. Throws ResourceError if the folder cannot hold the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>
#include <string>

#include "trireme/memory/mapped_file.h"

namespace trireme::inline v0::parallel {

class MappedState {
 public:
  /// Creates the file in `folder`.
  explicit MappedState(const std::string& folder)
      : file_(folder, {.key = "memory.offload",
                       .prefix = "trireme-state",
                       .content = "the optimizer's state and the master weights"}) {}

  /// Moves the tensor's storage, with its content, into the file; views of it stay views. This
  /// object must outlive the storage's last use.
  void take(const at::Tensor& tensor) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    const std::size_t size = storage->nbytes();
    if (size == 0) return;
    void* data = file_.take(size).data;
    std::memcpy(data, storage->data(), size);
    storage->set_data_ptr_noswap(at::DataPtr(data, at::Device(at::kCPU)));
  }
  std::int64_t bytes() const { return file_.bytes(); }

 private:
  memory::MappedFile file_;
};

}  // namespace trireme::inline v0::parallel
