// RecentSlots: which slot of a store of saved tensors has a storage's bytes already, so that a tensor
// that two nodes save is stored once. Internal to memory/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

namespace trireme::inline v0::memory {

template <class Slot>
class RecentSlots {
 public:
  /// Null if there is none, or if the storage was changed since.
  std::shared_ptr<Slot> find(const at::Tensor& tensor) const {
    const auto found = slots_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == slots_.end() || found->second.version != version_of(tensor) ||
        found->second.storage.expired())
      return nullptr;
    return found->second.slot.lock();
  }
  void add(const at::Tensor& tensor, const std::shared_ptr<Slot>& slot) {
    c10::StorageImpl* const memory = tensor.storage().unsafeGetStorageImpl();
    const auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(memory);
    slots_.insert_or_assign(memory,
                            Entry{c10::weak_intrusive_ptr(storage), version_of(tensor), slot});
  }
  void forget_freed() {
    std::erase_if(slots_, [](const auto& one) { return one.second.storage.expired(); });
  }

 private:
  // Valid as long as the storage lives.
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::uint32_t version = 0;
    std::weak_ptr<Slot> slot;
  };
  static std::uint32_t version_of(const at::Tensor& tensor) {
    return static_cast<std::uint32_t>(tensor._version());
  }

  std::unordered_map<const c10::StorageImpl*, Entry> slots_;
};

}  // namespace trireme::inline v0::memory
