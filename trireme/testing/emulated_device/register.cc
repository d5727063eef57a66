// The functions of emulated_device.h.
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

#include "trireme/testing/emulated_device/allocators.h"
#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/emulated_device.h"
#include "trireme/testing/emulated_device/graphs.h"
#include "trireme/testing/emulated_device/guard.h"
#include "trireme/testing/emulated_device/hooks.h"
#include "trireme/testing/emulated_device/operators.h"
#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {

void register_emulated_device(const EmulatedOptions& options) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const Runtime* const runtime = Runtime::find()) {
    TORCH_CHECK(runtime->num_devices() == options.devices &&
                    runtime->memory_bytes() == options.memory_bytes,
                "this process has ", runtime->num_devices(), " emulated devices of ",
                runtime->memory_bytes(), " bytes already");
    return reseed(options.seed);
  }
  TORCH_CHECK(options.devices > 0 && options.devices <= 64, "1 to 64 emulated devices, not ",
              options.devices);
  Runtime::create(options);
  c10::register_privateuse1_backend(kBackendName);
  register_guard();
  register_allocators();
  register_hooks();
  register_operators();
  register_graphs();
}

void reseed(std::uint64_t seed) { Runtime::get().reseed(seed); }
EmulatedStats emulated_stats() { return Runtime::get().stats(); }
void reset_emulated_stats() { Runtime::get().reset_stats(); }
std::size_t emulated_pinned_bytes() { return Runtime::get().pinned_bytes(); }
EmulatedMemory emulated_memory(int device) { return Runtime::get().memory(device); }
void reset_emulated_peak(int device) { Runtime::get().reset_peak(device); }
void skip_one_wait(std::uint64_t n) { Runtime::get().skip_wait(n); }

void launch_kernel(int device, std::string name, const std::vector<KernelMemory>& memory,
                   std::function<void()> run) {
  std::vector<Access> accesses;
  for (const KernelMemory& one : memory)
    accesses.push_back({.begin = one.begin, .bytes = one.bytes, .write = one.write});
  Runtime::get().launch(current_stream(device),
                        {std::move(name), std::move(accesses), std::move(run)});
}
void* address_for_kernels(const void* address) { return Runtime::get().hidden(address); }

RaceHandler set_race_handler(RaceHandler handler) {
  return Runtime::get().set_race_handler(std::move(handler));
}

}  // namespace trireme::inline v0::testing
