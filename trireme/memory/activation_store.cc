#include "trireme/memory/activation_store.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/memory/saved_tensors.h"
#include "trireme/memory/saved_view.h"
#include "trireme/tensor/devices/copy_streams.h"
#include "trireme/tensor/devices/pinned_memory.h"

namespace trireme::inline v0::memory {
namespace {

using Storage = c10::intrusive_ptr<c10::StorageImpl>;

at::Tensor bytes_of(const Storage& storage) {
  const auto size = static_cast<std::int64_t>(storage->nbytes());
  return at::empty({0}, at::TensorOptions(storage->device()).dtype(at::kByte))
      .set_(c10::Storage(storage), 0, {size}, {1});
}

// A device's streams for copies, and the bytes of pinned memory that LibTorch allocates.
struct Copies {
  const tensor::CopyStreams streams;
  std::int64_t bytes = 0, most_bytes = 0;
};

// One storage: on the device until `original` is released, and on the host.
struct HostSlot {
  HostSlot(std::shared_ptr<Copies> own_copies, Storage storage)
      : copies(std::move(own_copies)),
        host(tensor::pinned_pieces(storage->nbytes())),
        original(std::move(storage)) {
    copies->bytes += host_bytes();
    copies->most_bytes = std::max(copies->most_bytes, copies->bytes);
    each_piece(bytes_of(original), [&](const at::Tensor& part, const at::Tensor& piece) {
      copies->streams.store(part, piece);
    });
  }
  ~HostSlot() {
    copies->bytes -= host_bytes();
    if (original) copies->streams.hold_until_stored(original->data_ptr());
    if (back && !waited) copies->streams.hold_until_fetched(back->data_ptr());
  }
  HostSlot(const HostSlot&) = delete;

  void fetch() {
    std::int64_t bytes = 0;
    for (const at::Tensor& piece : host) bytes += piece.numel();
    const at::Tensor memory =
        at::empty({bytes}, at::TensorOptions(copies->streams.device()).dtype(at::kByte));
    back = Storage::reclaim_copy(memory.storage().unsafeGetStorageImpl());
    each_piece(memory, [&](const at::Tensor& part, const at::Tensor& piece) {
      copies->streams.fetch(piece, part);
    });
    fetched.emplace(copies->streams.fetched());
  }
  /// The storage on the device; the computing stream waits until it is complete.
  c10::Storage storage() {
    if (original) return c10::Storage(original);
    if (!back) fetch();
    copies->streams.wait(*fetched);
    waited = true;
    return c10::Storage(back);
  }

  /// Calls `copy` with each piece of pinned memory and the part of `memory` that it holds.
  template <class Copy>
  void each_piece(const at::Tensor& memory, const Copy& copy) const {
    std::int64_t begin = 0;
    for (const at::Tensor& piece : host) {
      copy(memory.narrow(0, begin, piece.numel()), piece);
      begin += piece.numel();
    }
  }
  std::int64_t host_bytes() const {
    std::size_t bytes = 0;
    for (const at::Tensor& piece : host) bytes += std::bit_ceil(piece.nbytes());
    return static_cast<std::int64_t>(bytes);
  }

  const std::shared_ptr<Copies> copies;
  const std::vector<at::Tensor> host;  // pinned
  Storage original, back;              // at most one is there
  std::optional<c10::Event> fetched;   // when `back` is complete
  bool waited = false;                 // the computing stream has waited for `fetched`
  bool wanted = false;                 // `original` stays, since backward needs it next
};

// The tensors that one block saves in one forward pass.
struct HostParcel {
  std::weak_ptr<HostParcel> before;  // the block before in the same pass; backward needs it next
  std::vector<std::weak_ptr<HostSlot>> slots;
  std::optional<c10::Event> copied;
  bool read = false;
};

// The ActivationStore of a device: pinned memory of the host. Streams copy, and no host waits:
//
//   compute  | block 0 | block 1 | block 2 | ...     backward | block 2 | block 1 | block 0 |
//   copies             | out 0   | out 1   |         copies   | in 1    | in 0    |
//
// Before block i the computing stream waits for the copies of block i-2, and their device memory
// becomes free. When backward reads the first tensor of block i, the copies of block i-1 start. One
// thread runs forward and backward. Graphs that still need saved tensors keep their memory alive.
class HostActivations final : public ActivationStore {
 public:
  explicit HostActivations(c10::Device device)
      : copies_(std::make_shared<Copies>(tensor::CopyStreams(device))) {}

  void begin_pass() override { chain_.reset(); }
  void turn() override {
    let_go();
    want(chain_.lock());
  }
  std::int64_t bytes() const override { return copies_->most_bytes; }

 private:
  struct Keeper final : TensorKeeper {
    Keeper(HostActivations& own_store, std::shared_ptr<HostParcel> own_parcel)
        : store(own_store), parcel(std::move(own_parcel)) {}
    Return keep(const at::Tensor& tensor) override {
      if (!can_be_stored(tensor, store.copies_->streams.device().type())) return {};
      const auto stored = [&](const at::Tensor& one) { return store.slot_for(one, *parcel); };
      return [own = parcel, kept = store.recent_.keep(tensor, stored)] { return read(kept, *own); };
    }
    HostActivations& store;
    const std::shared_ptr<HostParcel> parcel;
  };

  std::unique_ptr<TensorKeeper> begin_block() override {
    let_go();
    auto parcel = std::make_shared<HostParcel>();
    parcel->before = chain_;
    before_last_ = std::exchange(last_, parcel);
    chain_ = parcel;
    recent_.forget_freed();
    return std::make_unique<Keeper>(*this, std::move(parcel));
  }

  // The last block has ended: the one before it leaves the device.
  void let_go() {
    if (last_ && !last_->copied) last_->copied.emplace(copies_->streams.stored());
    const std::shared_ptr<HostParcel> parcel = std::exchange(before_last_, nullptr);
    if (!parcel) return;
    copies_->streams.wait(*parcel->copied);
    for (const std::weak_ptr<HostSlot>& one : parcel->slots)
      if (const auto slot = one.lock(); slot && !slot->wanted) slot->original.reset();
  }

  std::shared_ptr<HostSlot> slot_for(const at::Tensor& tensor, HostParcel& parcel) {
    auto slot = std::make_shared<HostSlot>(
        copies_, Storage::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
    parcel.slots.push_back(slot);
    return slot;
  }

  static at::Tensor read(const RecentSlots<HostSlot>::Kept& kept, HostParcel& parcel) {
    kept.view.check();
    if (kept.held->copy.defined()) return kept.held->copy;
    c10::Storage storage = kept.held->slot->storage();
    if (!std::exchange(parcel.read, true)) want(parcel.before.lock());
    return kept.view.over(std::move(storage));
  }

  // Backward needs the parcel next.
  static void want(const std::shared_ptr<HostParcel>& parcel) {
    if (!parcel) return;
    for (const std::weak_ptr<HostSlot>& one : parcel->slots) {
      const auto slot = one.lock();
      if (!slot) continue;
      slot->wanted = true;
      if (!slot->original && !slot->back) slot->fetch();
    }
  }

  const std::shared_ptr<Copies> copies_;
  std::shared_ptr<HostParcel> last_, before_last_;
  std::weak_ptr<HostParcel> chain_;
  RecentSlots<HostSlot> recent_;
};

}  // namespace

at::Tensor ActivationStore::run(const std::function<at::Tensor(const at::Tensor&)>& forward,
                                const at::Tensor& input) {
  const Block block(*this);
  return forward(input);
}

ActivationStore::Block::Block(ActivationStore& store) {
  if (!c10::GradMode::is_enabled()) return;
  keeper_ = store.begin_block();
  scope_ = std::make_unique<SavedTensorsScope>(*keeper_);
}

ActivationStore::Block::~Block() = default;

std::shared_ptr<ActivationStore> make_activation_store(const std::string& place,
                                                       at::Device device) {
  if (device.is_cpu()) return std::make_shared<ActivationFile>(place);
  return std::make_shared<HostActivations>(device);
}

}  // namespace trireme::inline v0::memory
