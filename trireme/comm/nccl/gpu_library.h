// GpuLibrary: the CUDA driver and NCCL, loaded at run time. Nothing links against either, so one
// program runs with and without a GPU. An immutable value; the libraries are never unloaded.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/nccl/cuda_api.h"
#include "trireme/comm/nccl/nccl_api.h"

namespace trireme::inline v0::comm::nccl {

/// Files to open. If empty: TRIREME_CUDA_LIBRARY, else libcuda.so.1; and TRIREME_NCCL_LIBRARY, else
/// libnccl.so.2 (even one that LibTorch has loaded), else the file that this build found.
struct GpuFiles {
  std::string cuda = {}, nccl = {};
};

struct GpuLibrary {
  CudaApi cuda;
  NcclApi nccl;
  int driver_version = 0;  // 13000: CUDA 13.0
  int nccl_version = 0;    // 22803: 2.28.3
  /// Kernels for cuModuleLoadData; empty if this build has none.
  std::span<const std::byte> kernels = {};
};

/// Throws ConfigError if a library is missing or too old, or if there is no GPU.
std::shared_ptr<const GpuLibrary> open_gpu_library(const GpuFiles& files = {});
/// The same without NCCL, whose functions are null then.
std::shared_ptr<const GpuLibrary> open_cuda_library(const GpuFiles& files = {});

struct GpuInfo {
  std::string name;        // "NVIDIA H200"
  std::string uuid;        // 32 hexadecimal digits
  std::size_t memory = 0;  // bytes
};
/// The GPUs that this process may use (CUDA_VISIBLE_DEVICES), by index.
std::vector<GpuInfo> list_gpus(const GpuLibrary& library);

/// "2 x NVIDIA H200, CUDA 13.0, NCCL 2.28.3", or "none: " and the reason.
std::string describe_gpus(const GpuFiles& files = {});

/// The environment variable that makes cuBLAS add in one order. fix_cublas_order() sets it if it
/// has no value. LibTorch reads it at a process's first product on a GPU: later calls do nothing.
constexpr const char* kCublasOrder = "CUBLAS_WORKSPACE_CONFIG";
void fix_cublas_order();

/// "2.28.3"; "13.0".
std::string nccl_version_text(int version);
std::string cuda_version_text(int version);

}  // namespace trireme::inline v0::comm::nccl
