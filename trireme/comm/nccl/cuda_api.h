// The functions of the CUDA driver that Trireme calls, as pointers loaded from libcuda.so.1 at run
// time. So one program works on machines with and without a GPU, and tests can load a fake driver.
// CUDA's types are replaced by their ABI types (handles: void*, enums: int, CUdeviceptr: 64 bits);
// api_check.cc compares every line with cuda.h if the build finds it. A stream may be a
// cudaStream_t or a CUstream. All functions are thread safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::inline v0::comm::nccl {

struct CudaUuid {
  char bytes[16];
};
using CudaAddress = unsigned long long;

// (member, function of cuda.h, symbol, parameters); all return CUresult.
#define TRIREME_CUDA_FUNCTIONS(F)                                                               \
  F(init, cuInit, "cuInit", (unsigned flags))                                                   \
  F(driver_version, cuDriverGetVersion, "cuDriverGetVersion", (int* version))                   \
  F(error_text, cuGetErrorString, "cuGetErrorString", (int error, const char** text))           \
  F(device_count, cuDeviceGetCount, "cuDeviceGetCount", (int* count))                           \
  F(device_get, cuDeviceGet, "cuDeviceGet", (int* device, int ordinal))                         \
  F(device_name, cuDeviceGetName, "cuDeviceGetName", (char* name, int length, int device))      \
  F(device_uuid, cuDeviceGetUuid_v2, "cuDeviceGetUuid_v2", (CudaUuid * uuid, int device))       \
  F(device_memory, cuDeviceTotalMem, "cuDeviceTotalMem_v2", (std::size_t * bytes, int device))  \
  F(context_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                       \
    (void** context, int device))                                                               \
  F(context_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))   \
  F(context_push, cuCtxPushCurrent, "cuCtxPushCurrent_v2", (void* context))                     \
  F(context_pop, cuCtxPopCurrent, "cuCtxPopCurrent_v2", (void** context))                       \
  F(stream_create, cuStreamCreate, "cuStreamCreate", (void** stream, unsigned flags))           \
  F(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2", (void* stream))                      \
  F(stream_wait_event, cuStreamWaitEvent, "cuStreamWaitEvent",                                  \
    (void* stream, void* event, unsigned flags))                                                \
  F(event_create, cuEventCreate, "cuEventCreate", (void** event, unsigned flags))               \
  F(event_destroy, cuEventDestroy, "cuEventDestroy_v2", (void* event))                          \
  F(event_record, cuEventRecord, "cuEventRecord", (void* event, void* stream))                  \
  F(event_query, cuEventQuery, "cuEventQuery", (void* event))                                   \
  F(memory_allocate, cuMemAlloc, "cuMemAlloc_v2", (CudaAddress * address, std::size_t bytes))   \
  F(memory_free, cuMemFree, "cuMemFree_v2", (CudaAddress address))                              \
  F(copy_async, cuMemcpyAsync, "cuMemcpyAsync",                                                 \
    (CudaAddress to, CudaAddress from, std::size_t bytes, void* stream))                        \
  F(fill_async, cuMemsetD8Async, "cuMemsetD8Async",                                             \
    (CudaAddress at, unsigned char value, std::size_t bytes, void* stream))                     \
  F(module_load, cuModuleLoadData, "cuModuleLoadData", (void** module, const void* image))      \
  F(module_unload, cuModuleUnload, "cuModuleUnload", (void* module))                            \
  F(module_function, cuModuleGetFunction, "cuModuleGetFunction",                                \
    (void** function, void* module, const char* name))                                          \
  F(launch, cuLaunchKernel, "cuLaunchKernel",                                                   \
    (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,       \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, \
     void** extra))

struct CudaApi {
#define TRIREME_MEMBER(member, function, symbol, parameters) int(*member) parameters = nullptr;
  TRIREME_CUDA_FUNCTIONS(TRIREME_MEMBER)
#undef TRIREME_MEMBER
};

inline constexpr int kCudaSuccess = 0, kCudaOutOfMemory = 2, kCudaNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;

inline CudaAddress address_of(const void* memory) noexcept {
  return static_cast<CudaAddress>(reinterpret_cast<std::uintptr_t>(memory));
}

}  // namespace trireme::inline v0::comm::nccl
