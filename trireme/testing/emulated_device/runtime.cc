#include "trireme/testing/emulated_device/runtime.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace trireme::inline v0::testing {
namespace {

constexpr std::size_t kMaxPending = 4096;    // operations; with more, the host waits until half ran
constexpr std::size_t kStreamsPerPool = 32;  // as in CUDA

std::atomic<Runtime*> the_runtime = nullptr;
std::atomic<bool> forked = false;

}  // namespace

void Runtime::create(const EmulatedOptions& options) {
  the_runtime = new Runtime(options);  // never destroyed: tensors may outlive static objects
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  // Runs before LibTorch's static objects are destroyed, since these were made earlier.
  std::atexit([] {
    if (Runtime* const runtime = find()) runtime->streams_.stop();
  });
}

Runtime* Runtime::find() noexcept { return forked ? nullptr : the_runtime.load(); }

Runtime& Runtime::get() {
  Runtime* const runtime = find();
  TORCH_CHECK(runtime, forked ? "the emulated device cannot be used in a child of fork()"
                              : "call register_emulated_device() first");
  return *runtime;
}

Runtime::Runtime(const EmulatedOptions& options)
    : num_devices_(options.devices),
      memory_bytes_(options.memory_bytes),
      streams_(options.seed, [this](StreamIndex stream, const std::string& name,
                                    const std::string& what) { fail(stream, name, what); }) {
  const Lock lock(streams_.mutex());
  for (int i = 0; i < num_devices_; ++i) {
    devices_.emplace_back(options.memory_bytes).counts.capacity = options.memory_bytes;
    add_stream(lock, i);  // the default stream
  }
  for (int i = 0; i < num_devices_; ++i) devices_[i].frees = add_stream(lock, i);
}

void Runtime::check_device(int device) const {
  TORCH_CHECK(device >= 0 && device < num_devices_, "there is no device emulated:", device,
              ", only ", num_devices_, " of them");
}

StreamIndex Runtime::add_stream(const Lock& lock, int device) {
  all_.push_back({device, {}});
  return streams_.add_stream(lock);
}

StreamIndex Runtime::pool_stream(int device, bool high_priority) {
  check_device(device);
  const Lock lock(streams_.mutex());
  auto& pool = devices_[device].pools[high_priority];
  auto& next = devices_[device].next_of_pool[high_priority];
  if (pool.size() < kStreamsPerPool) pool.push_back(add_stream(lock, device));
  return pool[next++ % kStreamsPerPool];
}

StreamIndex Runtime::new_stream(int device) {
  check_device(device);
  const Lock lock(streams_.mutex());
  return add_stream(lock, device);
}

int Runtime::device_of(StreamIndex stream) {
  const Lock lock(streams_.mutex());
  TORCH_CHECK(stream < all_.size(), "the emulated device has no stream ", stream);
  return all_[stream].device;
}

std::string Runtime::name_of(StreamIndex stream) {
  const Lock lock(streams_.mutex());
  return name_of_locked(stream);
}

std::string Runtime::name_of_locked(StreamIndex stream) const {
  const int device = all_[stream].device;
  return "emulated:" + std::to_string(device) + " stream " +
         std::to_string(stream == default_stream(device) ? 0 : stream);
}

StreamPoint Runtime::launch(StreamIndex stream, Launch work) {
  StreamPoint point;
  std::optional<RaceReport> race;
  {
    const Lock lock(streams_.mutex());
    if (all_[stream].recording) {
      TORCH_CHECK(work.after.empty(), work.name, " draws random numbers in a graph");
      all_[stream].recording->work.push_back(std::move(work));
      return streams_.end_of(stream);
    }
  }
  if (work.given) work.given();
  {
    Lock lock(streams_.mutex());
    VectorClock& known = all_[stream].known;
    known.join(host_knows_);
    point = {stream, streams_.end_of(stream).count + 1};
    known.advance(point);
    race = note_accesses(stream, point, known, work);
    ++stats_.operations;
    streams_.push(lock, stream, {std::move(work.name), std::move(work.after), std::move(work.run)});
    if (streams_.num_pending() > kMaxPending) streams_.wait_for_room(lock, kMaxPending / 2);
  }
  if (race) report(*race);
  return point;
}

std::optional<RaceReport> Runtime::note_accesses(StreamIndex stream, StreamPoint point,
                                                 const VectorClock& known, const Launch& work) {
  std::optional<RaceReport> found;
  for (const Access& access : work.accesses) {
    const Block* const block = access.bytes > 0 ? block_of(access.begin) : nullptr;
    const bool missing = access.bytes > 0 && !block && device_of_address(access.begin) >= 0;
    if (found || !(missing || (block && block->freed))) continue;
    found = describe({"the free of its memory", work.name, block ? block->stream : stream, stream,
                      true, access.write, access.begin, access.bytes},
                     RaceKind::UseAfterFree);
  }
  const auto race = races_.access(work.name, point, known, work.accesses);
  if (race && !found) found = describe(*race, {});
  return found;
}

void Runtime::wait(StreamPoint point) {
  Lock lock(streams_.mutex());
  streams_.wait(lock, point);
}

StreamPoint Runtime::end_of(StreamIndex stream) {
  const Lock lock(streams_.mutex());
  return streams_.end_of(stream);
}

void Runtime::synchronize_stream(StreamIndex stream) {
  int device = 0;
  {
    Lock lock(streams_.mutex());
    check_not_recorded(stream, "the host waits for");
    ++stats_.synchronisations;
    device = all_[stream].device;
    const VectorClock known = all_[stream].known;
    streams_.wait(lock, streams_.end_of(stream));
    host_knows_.join(known);
  }
  throw_error_of(device);
}

void Runtime::synchronize_device(int device) {
  check_device(device);
  {
    Lock lock(streams_.mutex());
    ++stats_.synchronisations;
    VectorClock known;
    std::vector<StreamPoint> ends;
    for (StreamIndex i = 0; i < all_.size(); ++i) {
      if (all_[i].device != device) continue;
      known.join(all_[i].known);
      ends.push_back(streams_.end_of(i));
    }
    for (const StreamPoint end : ends) streams_.wait(lock, end);
    host_knows_.join(known);
  }
  throw_error_of(device);
}

bool Runtime::query_stream(StreamIndex stream) {
  Lock lock(streams_.mutex());
  const StreamPoint end = streams_.end_of(stream);
  const VectorClock known = all_[stream].known;
  if (!streams_.reached(end)) streams_.step(lock);
  if (!streams_.reached(end)) return false;
  host_knows_.join(known);
  return true;
}

void Runtime::fail(StreamIndex stream, const std::string& name, const std::string& what) {
  std::optional<std::string>& error = devices_[all_[stream].device].error;
  if (!error) error = name + " on " + name_of_locked(stream) + " failed: " + what;
}

void Runtime::throw_error_of(int device) {
  std::optional<std::string> error;
  {
    const Lock lock(streams_.mutex());
    error = std::exchange(devices_[device].error, std::nullopt);
  }
  TORCH_CHECK(!error, *error);
}

void Runtime::reseed(std::uint64_t seed) {
  const Lock lock(streams_.mutex());
  streams_.reseed(lock, seed);
}

EmulatedStats Runtime::stats() {
  const Lock lock(streams_.mutex());
  return stats_;
}

void Runtime::reset_stats() {
  const Lock lock(streams_.mutex());
  stats_ = {};
}

void Runtime::count_copy(std::uint64_t EmulatedStats::*copies, std::uint64_t EmulatedStats::*bytes,
                         std::uint64_t num_bytes) {
  const Lock lock(streams_.mutex());
  ++(stats_.*copies);
  stats_.*bytes += num_bytes;
}

RaceHandler Runtime::set_race_handler(RaceHandler handler) {
  const Lock lock(streams_.mutex());
  return std::exchange(race_handler_, std::move(handler));
}

}  // namespace trireme::inline v0::testing
