#include "trireme/sync/offload.h"

#include <cstring>

namespace trireme::inline v0::parallel {

MappedState::MappedState(const std::string& folder)
    : file_(folder, {.key = "memory.offload",
                     .prefix = "trireme-state",
                     .content = "the optimizer's state and the master weights"}) {}

void MappedState::take(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t size = storage->nbytes();
  if (size == 0) return;
  void* data = file_.take(size).data;
  std::memcpy(data, storage->data(), size);
  storage->set_data_ptr_noswap(at::DataPtr(data, at::Device(at::kCPU)));
}

}  // namespace trireme::inline v0::parallel
