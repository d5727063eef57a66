// The fake CUDA driver (fake_gpu.h).
#include <cstdlib>
#include <cstring>

#include "fake_state.h"
#include "trireme/comm/nccl/cuda_api.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::test {
namespace {

using comm::nccl::CudaAddress;

constexpr int kSuccess = 0, kInvalid = 1, kNoContext = 201, kUnsupportedPtx = 222,
              kIllegalAddress = 700;
thread_local std::vector<void*> contexts;

std::byte* memory_at(CudaAddress address) { return reinterpret_cast<std::byte*>(address); }

int state_of_gpu() {
  FakeState& fake = FakeState::get();
  const int gpu = fake.current();
  if (gpu < 0) return kNoContext;
  return fake.broken.contains(gpu) ? kIllegalAddress : kSuccess;
}

}  // namespace

FakeState& FakeState::get() {
  static FakeState state;
  return state;
}

void* FakeState::context() const { return contexts.empty() ? nullptr : contexts.back(); }

int FakeState::current() {
  if (context()) return static_cast<int>(reinterpret_cast<std::intptr_t>(context())) - 1;
  violate("a CUDA call without a current context");
  return -1;
}

FakeStream& FakeState::stream(void* handle) {
  if (!handle) return default_streams[context()];
  const auto found = streams.find(handle);
  if (found != streams.end()) return *found->second;
  violate("a stream that is gone");
  return default_streams[nullptr];
}

void FakeState::touch(const void* at, std::size_t bytes, const std::string& who) {
  const auto* begin = static_cast<const std::byte*>(at);
  auto block = memory.upper_bound(begin);
  const bool inside = bytes == 0 || (block != memory.begin() && (--block, true) &&
                                     begin + bytes <= block->first + block->second);
  if (!inside) violate(who + " touches memory that is not allocated");
}

void FakeState::pump() {
  const auto advance = [](FakeStream& stream) {
    bool moved = false;
    while (!stream.ops.empty() && stream.ops.front()()) {
      stream.ops.pop_front();
      moved = true;
    }
    return moved;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [handle, stream] : streams) moved |= advance(*stream);
    for (auto& [context, stream] : default_streams) moved |= advance(stream);
  }
}

}  // namespace trireme::test

using namespace trireme::test;

extern "C" {
int cuInit(unsigned) {
  if (const char* text = std::getenv("TRIREME_FAKE_GPUS"))
    FakeState::get().num_gpus = std::atoi(text);
  return kSuccess;
}
int cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
int cuGetErrorString(int error, const char** text) {
  *text = error == kIllegalAddress   ? "an illegal memory access was encountered"
          : error == kUnsupportedPtx ? "the provided PTX was compiled with an unsupported toolchain"
                                     : "invalid";
  return kSuccess;
}
int cuDeviceGetCount(int* count) { return *count = FakeState::get().num_gpus, kSuccess; }
int cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal, ordinal < FakeState::get().num_gpus ? kSuccess : kInvalid;
}
int cuDeviceGetName(char* name, int length, int) {
  return std::snprintf(name, length, "Made-up GPU"), kSuccess;
}
int cuDeviceGetUuid_v2(trireme::comm::nccl::CudaUuid* uuid, int device) {
  std::memset(uuid, 0, sizeof *uuid);
  return uuid->bytes[0] = static_cast<char>(device), kSuccess;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = 16'000'000'000, kSuccess; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  return *context = reinterpret_cast<void*>(std::intptr_t(device) + 1), kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
int cuCtxPushCurrent_v2(void* context) { return contexts.push_back(context), kSuccess; }
int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kNoContext;
  *context = contexts.back();
  return contexts.pop_back(), kSuccess;
}

int cuStreamCreate(void** stream, unsigned) {
  const auto lock = locked();
  auto made = std::make_unique<FakeStream>();
  *stream = made.get();
  FakeState::get().streams[*stream] = std::move(made);
  return state_of_gpu();
}
int cuStreamDestroy_v2(void* stream) {
  const auto lock = locked();
  FakeState& fake = FakeState::get();
  fake.pump();
  if (!fake.stream(stream).ops.empty() && !fake.frozen_for_good)
    fake.violate("a stream is destroyed with work in it");
  return fake.streams.erase(stream), kSuccess;
}
int cuEventCreate(void** event, unsigned) { return *event = new FakeEvent(), kSuccess; }
int cuEventDestroy_v2(void* event) { return delete static_cast<FakeEvent*>(event), kSuccess; }
int cuEventRecord(void* event, void* stream) {
  const auto lock = locked();
  auto mark = static_cast<FakeEvent*>(event)->mark = std::make_shared<bool>(false);
  FakeState::get().push(stream, [mark] { return *mark = true; });
  return state_of_gpu();
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  const auto lock = locked();
  const auto mark = static_cast<FakeEvent*>(event)->mark;
  FakeState::get().push(stream, [mark] { return !mark || *mark; });
  return state_of_gpu();
}
int cuEventQuery(void* event) {
  const auto lock = locked();
  FakeState& fake = FakeState::get();
  ++fake.looks;
  fake.pump();
  if (const int state = state_of_gpu()) return state;
  const auto mark = static_cast<FakeEvent*>(event)->mark;
  return !mark || *mark ? kSuccess : 600;
}

int cuMemAlloc_v2(CudaAddress* address, std::size_t bytes) {
  const auto lock = locked();
  constexpr int kOutOfMemory = 2;
  if (bytes > std::size_t{1} << 40) return kOutOfMemory;  // a sanitizer ends at such a malloc
  auto* const block = static_cast<std::byte*>(std::malloc(bytes));
  if (block == nullptr) return kOutOfMemory;
  std::memset(block, 0xa5, bytes);
  FakeState::get().memory[block] = bytes;
  *address = reinterpret_cast<CudaAddress>(block);
  return state_of_gpu();
}
int cuMemFree_v2(CudaAddress address) {
  const auto lock = locked();
  FakeState& fake = FakeState::get();
  ++fake.calls["cuMemFree"];
  const auto block = fake.memory.find(memory_at(address));
  if (block == fake.memory.end()) return fake.violate("memory is freed twice"), kInvalid;
  std::memset(memory_at(address), 0xdd, block->second);  // leaked: addresses must not be reused
  return fake.memory.erase(block), kSuccess;
}
int cuMemcpyAsync(CudaAddress to, CudaAddress from, std::size_t bytes, void* stream) {
  const auto lock = locked();
  FakeState::get().push(stream, [to, from, bytes] {
    FakeState::get().touch(memory_at(to), bytes, "a copy");
    FakeState::get().touch(memory_at(from), bytes, "a copy");
    std::memmove(memory_at(to), memory_at(from), bytes);
    return true;
  });
  return state_of_gpu();
}
int cuMemsetD8Async(CudaAddress at, unsigned char value, std::size_t bytes, void* stream) {
  const auto lock = locked();
  FakeState::get().push(stream, [at, value, bytes] {
    FakeState::get().touch(memory_at(at), bytes, "a fill");
    std::memset(memory_at(at), value, bytes);
    return true;
  });
  return state_of_gpu();
}

int cuModuleLoadData(void** module, const void* image) {
  if (!FakeState::get().takes_kernels) return kUnsupportedPtx;
  return *module = const_cast<void*>(image), image ? kSuccess : kInvalid;
}
int cuModuleUnload(void*) { return kSuccess; }
int cuModuleGetFunction(void** function, void*, const char* name) {
  locked(), ++FakeState::get().calls["cuModuleGetFunction"];
  *function = const_cast<void*>(static_cast<const void*>(trireme::testing::kernel_on_host(name)));
  return *function ? kSuccess : 500;
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void* stream, void** parameters, void**) {
  const auto lock = locked();
  const auto& kernel = *static_cast<const trireme::testing::KernelOnHost*>(function);
  const auto* const given = static_cast<const std::byte*>(parameters[0]);
  std::vector<std::byte> arguments(given, given + kernel.argument_bytes);
  FakeState::get().push(stream, [&kernel, arguments]() mutable {
    kernel.each_array(arguments.data(), [](void*& at, std::size_t bytes, bool) {
      FakeState::get().touch(at, bytes, "a kernel");
    });
    kernel.run(arguments.data());
    return true;
  });
  return state_of_gpu();
}
}
