#include "trireme/memory/activation_store.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/words.h"
#include "trireme/memory/mapped_file.h"
#include "trireme/memory/saved_tensors.h"
#include "trireme/memory/saved_view.h"

namespace trireme::inline v0::memory {
namespace {

using Storage = c10::intrusive_ptr<c10::StorageImpl>;

// Bytes in memory: saved and not yet written; fetched or about to be fetched.
struct Levels {
  std::atomic<std::int64_t> waiting{0}, fetched{0};
};

// The region of one storage in the file. The store's mutex guards the members that change.
struct Slot {
  Slot(std::shared_ptr<MappedFile> own_file, std::shared_ptr<Levels> own_levels,
       Storage own_storage)
      : file(std::move(own_file)),
        levels(std::move(own_levels)),
        region(file->take(own_storage->nbytes())),
        bytes(static_cast<std::int64_t>(region.bytes)),
        storage(std::move(own_storage)) {
    levels->waiting += bytes;
  }
  ~Slot() {
    if (storage) levels->waiting -= bytes;
    if (mapped) {
      levels->fetched -= bytes;
      file->drop_pages(region);
    }
    file->give_back(region);
  }
  Slot(const Slot&) = delete;

  /// Counts the region's pages as this process's memory; false if they are counted already.
  bool map() {
    if (mapped) return false;
    levels->fetched += bytes;
    return mapped = true;
  }

  const std::shared_ptr<MappedFile> file;
  const std::shared_ptr<Levels> levels;
  const MappedFile::Region region;
  const std::int64_t bytes;
  Storage storage;      // the original; null once it has been written
  bool wanted = false;  // backward needs it; a storage that is still here stays in memory
  bool mapped = false;
};

// The tensors that one block saves in one forward pass.
struct Parcel {
  std::weak_ptr<Parcel> before;  // the block before in the same pass; backward needs it next
  std::vector<std::weak_ptr<Slot>> slots;
  std::atomic<int> unwritten{0};
  std::atomic<bool> read{false};
  // Memory counters of the saving thread must also see what the background thread frees.
  std::shared_ptr<c10::ThreadLocalDebugInfo> counter = c10::ThreadLocalDebugInfo::current();
};

// The queue between the computing threads and the background thread. Saved tensors in graphs hold a
// reference, so it may outlive the background thread.
class Store : public std::enable_shared_from_this<Store> {
 public:
  Store(const std::string& folder, Duration own_patience)
      : patience(own_patience),
        file(std::make_shared<MappedFile>(
            folder, MappedFile::Use{.key = "memory.offload_activations",
                                    .prefix = "trireme-activations",
                                    .content = "a micro-batch's activations"})) {}

  std::shared_ptr<Parcel> begin_block() {
    auto parcel = std::make_shared<Parcel>();
    if (before_last_) wait_written(*before_last_);
    parcel->before = chain_;
    before_last_ = std::move(last_);
    last_ = parcel;
    chain_ = parcel;
    recent_.forget_freed();
    return parcel;
  }
  void begin_pass() { chain_.reset(); }
  void turn() {
    if (before_last_) wait_written(*before_last_);
    fetch(chain_.lock());
  }

  TensorKeeper::Return keep(const at::Tensor& tensor, const std::shared_ptr<Parcel>& parcel) {
    if (!can_be_stored(tensor, at::kCPU)) return {};
    const auto store = [&](const at::Tensor& stored) { return slot_for(stored, parcel); };
    return [self = shared_from_this(), parcel, kept = recent_.keep(tensor, store)] {
      return self->read(kept, *parcel);
    };
  }

  // Body of the background thread.
  void work() {
    while (!stop_) {
      const std::uint32_t heard = bell_.load();
      if (!work_once() && !stop_) bell_.wait(heard);
    }
  }
  void stop() {
    stop_ = true;
    ring();
  }

  /// The time was over in which the disk had to write something.
  bool gave_up() const noexcept { return gave_up_; }

  const Duration patience;
  const std::shared_ptr<MappedFile> file;
  const std::shared_ptr<Levels> levels = std::make_shared<Levels>();

 private:
  struct Write {
    std::weak_ptr<Slot> slot;
    std::shared_ptr<Parcel> parcel;
  };
  void ring() {
    bell_.fetch_add(1);
    bell_.notify_all();
  }

  std::shared_ptr<Slot> slot_for(const at::Tensor& tensor, const std::shared_ptr<Parcel>& parcel) {
    auto slot = std::make_shared<Slot>(
        file, levels, Storage::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
    ++parcel->unwritten;
    {
      const std::lock_guard lock(mutex_);
      parcel->slots.push_back(slot);
      writes_.push_back({slot, parcel});
    }
    ring();
    return slot;
  }

  void wait_written(const Parcel& parcel) {
    while (parcel.unwritten > 0) {
      const std::uint32_t before = written_;
      const auto more = [&] { return parcel.unwritten == 0 || written_ != before; };
      if (waiter_->wait_until(more, waiter_->now() + patience)) continue;
      gave_up_ = true;
      file->refuse("no activation was written for " + duration_text(to_seconds(patience)),
                   ETIMEDOUT);
    }
    const std::lock_guard lock(mutex_);
    if (fault_ != 0) file->refuse("activations cannot be written", fault_);
  }

  at::Tensor read(const RecentSlots<Slot>::Kept& kept, Parcel& parcel) {
    const SavedView& view = kept.view;
    view.check();
    if (kept.held->copy.defined()) return kept.held->copy;
    const std::shared_ptr<Slot>& slot = kept.held->slot;
    if (!parcel.read.exchange(true)) {
      {
        const std::lock_guard lock(mutex_);
        fetches_.push_back(parcel.before);
      }
      ring();
    }
    Storage storage;
    {
      const std::lock_guard lock(mutex_);
      storage = slot->storage;
      slot->wanted = true;
      if (!storage) slot->map();
    }
    if (storage) return view.over(c10::Storage(std::move(storage)));
    auto* const data = static_cast<std::byte*>(slot->region.data) +
                       view.offset * static_cast<std::int64_t>(view.options.dtype().itemsize());
    return at::from_blob(
        data, view.sizes, view.strides, [slot](void*) {}, view.options);
  }

  bool work_once() {
    std::optional<std::weak_ptr<Parcel>> fetched;
    std::optional<Write> written;
    {
      const std::lock_guard lock(mutex_);
      if (!fetches_.empty()) {
        fetched = std::move(fetches_.front());
        fetches_.pop_front();
      } else if (!writes_.empty()) {
        written = std::move(writes_.front());
        writes_.pop_front();
      }
    }
    if (fetched) fetch(fetched->lock());
    if (written) write(*written);
    return fetched || written;
  }

  void write(const Write& write) {
    Storage storage;
    const std::shared_ptr<Slot> slot = write.slot.lock();
    if (slot) {
      const std::lock_guard lock(mutex_);
      if (!slot->wanted) storage = slot->storage;
    }
    const int fault = storage ? file->write(slot->region, storage->data(), storage->nbytes()) : 0;
    bool lets_go = false;
    if (storage) {
      const std::lock_guard lock(mutex_);
      if (fault != 0) fault_ = fault;
      lets_go = fault == 0 && !slot->wanted;
      if (lets_go) slot->storage.reset();
    }
    {
      const c10::DebugInfoGuard counts(write.parcel->counter);
      storage.reset();  // frees it
    }
    if (lets_go) levels->waiting -= slot->bytes;
    --write.parcel->unwritten;
    ++written_;
    waiter_->wake();
  }

  // Fetches what backward needs next. Storages that are not written yet stay in memory.
  void fetch(const std::shared_ptr<Parcel>& parcel) {
    if (!parcel) return;
    std::vector<std::shared_ptr<Slot>> due;
    {
      const std::lock_guard lock(mutex_);
      for (const std::weak_ptr<Slot>& one : parcel->slots) {
        std::shared_ptr<Slot> slot = one.lock();
        if (!slot) continue;
        slot->wanted = true;
        if (!slot->storage && slot->map()) due.push_back(std::move(slot));
      }
    }
    for (const std::shared_ptr<Slot>& slot : due) file->fetch(slot->region);
  }

  std::mutex mutex_;
  std::deque<Write> writes_;
  std::deque<std::weak_ptr<Parcel>> fetches_;
  int fault_ = 0;  // errno of the first write that failed
  std::atomic<std::uint32_t> bell_{0}, written_{0};
  std::atomic<bool> stop_{false}, gave_up_{false};
  // Not the job's, whose clock is virtual in a simulation: the disk is real.
  const std::shared_ptr<RealWaiter> waiter_ = RealWaiter::make(Duration::zero());
  // Used by the thread that runs forward.
  std::shared_ptr<Parcel> last_, before_last_;
  std::weak_ptr<Parcel> chain_;
  RecentSlots<Slot> recent_;
};

}  // namespace

struct ActivationFile::Impl {
  Impl(const std::string& folder, Duration patience) {
    const SignalsBlocked in_threads;
    store = std::make_shared<Store>(folder, patience);
    thread = std::thread([own = store] { own->work(); });
  }
  ~Impl() {
    store->stop();
    store->gave_up() ? thread.detach() : thread.join();  // it may hang in a write
  }
  std::shared_ptr<Store> store;
  std::thread thread;
};

ActivationFile::ActivationFile(const std::string& folder, Duration patience)
    : impl_(std::make_shared<Impl>(folder, patience)) {}
ActivationFile::~ActivationFile() = default;

std::unique_ptr<TensorKeeper> ActivationFile::begin_block() {
  struct Keeper final : TensorKeeper {
    explicit Keeper(Store& own_store) : store(own_store), parcel(store.begin_block()) {}
    Return keep(const at::Tensor& tensor) override { return store.keep(tensor, parcel); }
    Store& store;
    const std::shared_ptr<Parcel> parcel;
  };
  return std::make_unique<Keeper>(*impl_->store);
}

void ActivationFile::turn() { impl_->store->turn(); }
void ActivationFile::begin_pass() { impl_->store->begin_pass(); }
std::int64_t ActivationFile::bytes() const { return impl_->store->file->bytes(); }
std::int64_t ActivationFile::bytes_waiting() const { return impl_->store->levels->waiting; }
std::int64_t ActivationFile::bytes_fetched() const { return impl_->store->levels->fetched; }

}  // namespace trireme::inline v0::memory
