// The common parts of stores of saved tensors: which tensors they take, SavedView (what they keep
// besides the storage) and RecentSlots. Internal to memory/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::inline v0::memory {

constexpr std::size_t kSmallestStored = 16 << 10;  // bytes; moving less costs too much

/// Whether a store takes the tensor's storage: dense, on `device`, not too small, and not a
/// parameter's. Parameters are in memory anyway, and ZeRO-3 may move them before backward.
bool can_be_stored(const at::Tensor& tensor, c10::DeviceType device);

/// Whether the tensor's elements are dense and at most an eighth of its storage, such as a
/// micro-batch that is a view of a whole data set.
bool is_small_part(const at::Tensor& tensor);
/// A copy of such a tensor with the same strides, at offset_in_copy() of a storage of its own. Its
/// address has the same last 6 bits, because results of kernels may depend on them.
at::Tensor copy_of_part(const at::Tensor& tensor);
std::int64_t offset_in_copy(const at::Tensor& tensor);

/// How to rebuild a tensor over its storage, and the version that was saved. With saved-tensor
/// hooks, LibTorch does not check for in-place changes itself.
struct SavedView {
  explicit SavedView(const at::Tensor& tensor) : SavedView(tensor, tensor.storage_offset()) {}
  /// Another storage has the elements of `tensor`, from `own_offset` on.
  SavedView(const at::Tensor& tensor, std::int64_t own_offset);
  /// Throws c10::Error if the tensor was changed in place since.
  void check() const;
  at::Tensor over(c10::Storage storage) const;

  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::TensorOptions options;
  c10::VariableVersion counter;
  std::uint32_t version = 0;
};

/// Finds what a store has already, so that what several nodes save is stored once. A storage is
/// stored as a whole; of one of which a small part is saved, a copy of the part is stored.
template <class Slot>
class RecentSlots {
 public:
  struct Held {
    std::shared_ptr<Slot> slot;
    at::Tensor copy;  // instead of `slot`: of a part below kSmallestStored, which stays in memory
  };
  struct Kept {
    std::shared_ptr<const Held> held;
    SavedView view;
  };

  /// `store` makes a slot for the storage of the tensor that it gets.
  template <class Store>
  Kept keep(const at::Tensor& tensor, const Store& store) {
    std::vector<Entry>& entries = entries_[tensor.storage().unsafeGetStorageImpl()];
    std::erase_if(entries, [version = version_of(tensor)](const Entry& one) {
      return one.version != version || one.is_freed();
    });
    if (auto held = find(entries, std::nullopt)) return {std::move(held), SavedView(tensor)};
    if (!is_small_part(tensor))
      return {add(entries, tensor, std::nullopt, {.slot = store(tensor)}), SavedView(tensor)};
    const Layout layout(tensor);
    auto held = find(entries, layout);
    if (!held) {
      at::Tensor copy = copy_of_part(tensor);
      const bool small = copy.storage().nbytes() < kSmallestStored;
      held = add(entries, tensor, layout,
                 small ? Held{.copy = std::move(copy)} : Held{.slot = store(copy)});
    }
    return {std::move(held), SavedView(tensor, offset_in_copy(tensor))};
  }
  void forget_freed() {
    std::erase_if(entries_, [](const auto& of_storage) {
      return std::all_of(of_storage.second.begin(), of_storage.second.end(),
                         [](const Entry& one) { return one.is_freed(); });
    });
  }

 private:
  // Which elements of a storage a part has.
  struct Layout {
    explicit Layout(const at::Tensor& tensor)
        : sizes(tensor.sizes().vec()),
          strides(tensor.strides().vec()),
          offset(tensor.storage_offset()),
          type(tensor.scalar_type()) {}
    bool operator==(const Layout&) const = default;

    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset;
    at::ScalarType type;
  };
  // Valid as long as the storage lives and has the version.
  struct Entry {
    bool is_freed() const { return storage.expired() || held.expired(); }

    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::uint32_t version = 0;
    std::optional<Layout> layout;  // nullopt: the whole storage
    std::weak_ptr<const Held> held;
  };
  static std::uint32_t version_of(const at::Tensor& tensor) {
    return static_cast<std::uint32_t>(tensor._version());
  }
  static std::shared_ptr<const Held> find(const std::vector<Entry>& entries,
                                          const std::optional<Layout>& layout) {
    for (const Entry& one : entries)
      if (one.layout == layout) return one.held.lock();
    return nullptr;
  }
  static std::shared_ptr<const Held> add(std::vector<Entry>& entries, const at::Tensor& tensor,
                                         std::optional<Layout> layout, Held held) {
    const auto storage =
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl());
    auto shared = std::make_shared<const Held>(std::move(held));
    entries.push_back(
        {c10::weak_intrusive_ptr(storage), version_of(tensor), std::move(layout), shared});
    return shared;
  }

  std::unordered_map<const c10::StorageImpl*, std::vector<Entry>> entries_;
};

}  // namespace trireme::inline v0::memory
