// An emulated accelerator for tests: a LibTorch backend, torch::Device("emulated:1"), whose streams
// run late and in an order that a seed decides. A missing synchronisation makes a program fail and
// is named.
//
//     testing::register_emulated_device({.devices = 2, .seed = 7});
//     at::Tensor x = at::ones({4}, at::Device("emulated:0"));   // LibTorch's API from here on
//
//   - The host cannot touch device memory: a read or write through data_ptr() is a SIGSEGV.
//   - Operations are LibTorch's CPU ones with one thread, so results are the CPU's, bit for bit.
//   - Operations of one stream run in order. Only events and synchronisation order two streams.
//     Nothing runs before the host waits for something.
//   - A read or write that no event orders behind an earlier one is a race. It ends the process,
//     or is given to the handler of set_race_handler(), whatever order the streams then run in.
//   - Freed memory is filled with NaN, and so is the target of a copy to pinned memory until the
//     copy has run.
//
// Register before the first backward(), because LibTorch's engine then starts a thread per device.
// All functions are thread-safe. They throw c10::Error for a missing device and in a child of
// fork().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::inline v0::testing {

struct EmulatedOptions {
  int devices = 4;
  std::uint64_t seed = 0;
  std::size_t memory_bytes = std::size_t{1} << 30;  // of each device; taken from the host on use
};

/// Registers the backend "emulated". A second call with the same number of devices and the same
/// memory only reseeds; with others it throws.
void register_emulated_device(const EmulatedOptions& options = {});

/// Chooses another order of streams from here on.
void reseed(std::uint64_t seed);

/// The events since the start or the last reset, on all devices.
struct EmulatedStats {
  std::uint64_t operations = 0;  // given to streams, copies included
  std::uint64_t events = 0;      // recorded
  /// Destroyed events of a device that was not the thread's current one; on CUDA both get a
  /// context.
  std::uint64_t events_ended_elsewhere = 0;
  std::uint64_t waits = 0;             // of a stream for an event, without skipped ones
  std::uint64_t synchronisations = 0;  // of the host with a stream, an event or a device
  std::uint64_t copies_to_device = 0, bytes_to_device = 0;
  std::uint64_t copies_to_host = 0, bytes_to_host = 0;
  std::uint64_t copies_on_devices = 0, bytes_on_devices = 0;  // within one, or between two
};
EmulatedStats emulated_stats();
void reset_emulated_stats();

/// Bytes of one device. `allocated`: in tensors; `reserved`: in addition, freed but perhaps still
/// in use by a stream.
struct EmulatedMemory {
  std::size_t capacity = 0;
  std::size_t allocated = 0, peak_allocated = 0;
  std::size_t reserved = 0, peak_reserved = 0;
};
EmulatedMemory emulated_memory(int device);
void reset_emulated_peak(int device);
/// Bytes of the host's pinned memory: each block is rounded up to a power of two.
std::size_t emulated_pinned_bytes();

/// From now on the n-th wait of a stream for an event (c10::Event::block) does nothing; 1 is the
/// next one, 0 is none. Shows that a test notices a missing synchronisation.
void skip_one_wait(std::uint64_t n);

/// Memory of a device that a kernel uses, by the address that tensors carry.
struct KernelMemory {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};
/// Gives work other than LibTorch's operations to the device's current stream.
void launch_kernel(int device, std::string name, const std::vector<KernelMemory>& memory,
                   std::function<void()> run);
/// The bytes of a device's address, for `run`; null for any other address.
void* address_for_kernels(const void* address);

enum class RaceKind {
  ReadAfterWrite,   // reads what another stream may not have written yet
  WriteAfterRead,   // overwrites what another stream may still read
  WriteAfterWrite,  // overwrites what another stream may not have written yet
  FreeInUse,  // memory is freed while another stream may still use it (record_stream() is missing)
  UseAfterFree,  // uses memory that was freed
};

struct RaceReport {
  RaceKind kind = RaceKind::ReadAfterWrite;
  std::string earlier, later;                // operations: "aten::add.Tensor", "copy to host"
  std::string earlier_stream, later_stream;  // "emulated:0 stream 5"; stream 0 is the default one
  std::string sentence;                      // all of it, for people
};
using RaceHandler = std::function<void(const RaceReport&)>;

/// Calls `handler` with each race, in the thread whose call is the later one. An empty handler, as
/// at the start, prints the sentence and aborts. Returns the previous handler.
RaceHandler set_race_handler(RaceHandler handler);

}  // namespace trireme::inline v0::testing
