#include "trireme/comm/nccl/gpu_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/hex.h"
#include "trireme/kernel/cuda/kernel_image.h"

#ifndef TRIREME_NCCL_FOUND
#define TRIREME_NCCL_FOUND ""
#endif

namespace trireme::inline v0::comm::nccl {
namespace {

constexpr const char* kUseAnother = "Use comm.transport auto for CPU memory.";

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "nccl", .label = "comm.transport", .advice = advice});
}

std::string given(const std::string& file, const char* variable) {
  if (!file.empty()) return file;
  const char* const text = std::getenv(variable);
  return text ? text : "";
}

// The first of `files` that opens; if none does, null and the last error in `reason`.
void* open_first(std::span<const std::string> files, std::string& reason) {
  for (const std::string& file : files) {
    if (file.empty()) continue;
    if (void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    reason = dlerror();
  }
  return nullptr;
}

void* open_cuda(const std::string& file) {
  std::string reason;
  const std::string files[] = {file.empty() ? "libcuda.so.1" : file};
  if (void* const handle = open_first(files, reason)) return handle;
  refuse("no CUDA driver: " + reason,
         std::string("Run on a host with an NVIDIA GPU and its driver. ") + kUseAnother);
}

void* open_nccl(const std::string& file) {
  std::string reason;
  std::vector<std::string> files = {file};
  if (file.empty()) files = {"libnccl.so.2", TRIREME_NCCL_FOUND};
  if (void* const handle = open_first(files, reason)) return handle;
  refuse("no NCCL: " + reason,
         "Install it (pip install nvidia-nccl-cu13, or your distribution's libnccl2) and set "
         "TRIREME_NCCL_LIBRARY to its libnccl.so.2.");
}

template <class Function>
void take(void* handle, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (!function) refuse(std::string("the library has no ") + symbol, "Install a newer one.");
}

void start_cuda(GpuLibrary& library) {
  const auto require = [&](int result, const char* call) {
    const char* text = nullptr;
    if (result == kCudaSuccess) return;
    library.cuda.error_text(result, &text);
    refuse(std::string(call) + ": " + (text ? text : "unknown error " + std::to_string(result)),
           std::string("See that `nvidia-smi` works. ") + kUseAnother);
  };
  int count = 0;
  require(library.cuda.init(0), "cuInit");
  require(library.cuda.driver_version(&library.driver_version), "cuDriverGetVersion");
  require(library.cuda.device_count(&count), "cuDeviceGetCount");
  if (count == 0) refuse("no GPU is visible", "Look at CUDA_VISIBLE_DEVICES and `nvidia-smi -L`.");
}

}  // namespace

std::shared_ptr<const GpuLibrary> open_cuda_library(const GpuFiles& files) {
  auto library = std::make_shared<GpuLibrary>();
  void* handle = open_cuda(given(files.cuda, "TRIREME_CUDA_LIBRARY"));
#define TRIREME_TAKE(member, function, symbol, parameters) \
  take(handle, symbol, library->cuda.member);
  TRIREME_CUDA_FUNCTIONS(TRIREME_TAKE)
#undef TRIREME_TAKE
  start_cuda(*library);
  library->kernels = kernel::cuda::kernel_image();
  return library;
}

std::shared_ptr<const GpuLibrary> open_gpu_library(const GpuFiles& files) {
  auto library = std::make_shared<GpuLibrary>(*open_cuda_library(files));
  void* const handle = open_nccl(given(files.nccl, "TRIREME_NCCL_LIBRARY"));
  take(handle, "ncclGetVersion", library->nccl.version);
  if (library->nccl.version(&library->nccl_version) != kNcclSuccess ||
      library->nccl_version < kOldestNccl) {
    refuse("NCCL " + nccl_version_text(library->nccl_version) + " is older than " +
               nccl_version_text(kOldestNccl),
           "Install a newer one; older ones cannot be interrupted.");
  }
#define TRIREME_TAKE(member, function, type, parameters) \
  take(handle, #function, library->nccl.member);
  TRIREME_NCCL_FUNCTIONS(TRIREME_TAKE)
#undef TRIREME_TAKE
  return library;
}

std::vector<GpuInfo> list_gpus(const GpuLibrary& library) {
  std::vector<GpuInfo> gpus;
  int count = 0;
  if (library.cuda.device_count(&count) != kCudaSuccess) return gpus;
  for (int index = 0; index < count; ++index) {
    int device = 0;
    char name[128] = "";
    CudaUuid uuid{};
    std::size_t memory = 0;
    if (library.cuda.device_get(&device, index) != kCudaSuccess ||
        library.cuda.device_name(name, sizeof name, device) != kCudaSuccess ||
        library.cuda.device_uuid(&uuid, device) != kCudaSuccess ||
        library.cuda.device_memory(&memory, device) != kCudaSuccess) {
      refuse("GPU " + std::to_string(index) + " has no name, id or memory that CUDA reports",
             "See that `nvidia-smi -L` lists it.");
    }
    gpus.push_back({name, to_hex(std::as_bytes(std::span(uuid.bytes))), memory});
  }
  return gpus;
}

std::string describe_gpus(const GpuFiles& files) {
  try {
    const auto library = open_gpu_library(files);
    std::string text, name;
    int alike = 0;
    const auto add = [&] {
      if (alike > 0) text += std::to_string(alike) + " x " + name + ", ";
    };
    for (const GpuInfo& gpu : list_gpus(*library)) {
      if (gpu.name != name) {
        add();
        name = gpu.name, alike = 0;
      }
      ++alike;
    }
    add();
    text += "CUDA " + cuda_version_text(library->driver_version) + ", NCCL " +
            nccl_version_text(library->nccl_version);
    return library->kernels.empty() ? text + ", no kernels for reproducible sums" : text;
  } catch (const Error& error) {
    return "none: " + error.message();
  }
}

void fix_cublas_order() { ::setenv(kCublasOrder, ":4096:8", /*overwrite=*/0); }

std::string nccl_version_text(int version) {
  const int major = version < 10000 ? 1000 : 10000;  // 2804 is 2.8.4, 20900 is 2.9.0
  return std::to_string(version / major) + "." + std::to_string(version % major / 100) + "." +
         std::to_string(version % 100);
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace trireme::inline v0::comm::nccl
