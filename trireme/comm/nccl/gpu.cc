#include "trireme/comm/nccl/gpu.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/kernel/cuda/kernel_image.h"

namespace trireme::inline v0::comm::nccl {

constexpr unsigned kThreads = 256;           // per block; as kernels.cu's launch bounds
constexpr std::uint64_t kMostBlocks = 4096;  // beyond it, blocks take more

GpuEvent::~GpuEvent() {
  if (handle_) gpu_->put_back(handle_);
}

Gpu::Gpu(std::shared_ptr<const GpuLibrary> library, int index)
    : library_(std::move(library)), index_(index) {
  require(cuda().device_get(&device_, index), "cuDeviceGet");
  require(cuda().context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() {
  void* before = nullptr;
  if (cuda().context_push(context_) == kCudaSuccess) {
    for (void* event : events_) cuda().event_destroy(event);
    if (module_) cuda().module_unload(module_);
    cuda().context_pop(&before);
  }
  cuda().context_release(device_);
}

Gpu::Current::Current(const Gpu& gpu) : gpu_(gpu) {
  gpu_.require(gpu_.cuda().context_push(gpu_.context_), "cuCtxPushCurrent");
}

Gpu::Current::~Current() {
  void* own = nullptr;
  gpu_.cuda().context_pop(&own);
}

std::string Gpu::text_of(int result) const {
  const char* text = nullptr;
  cuda().error_text(result, &text);
  return text ? text : "CUDA error " + std::to_string(result);
}

void Gpu::require(int result, std::string_view call) const {
  if (result == kCudaSuccess) return;
  const bool full = result == kCudaOutOfMemory;
  throw ResourceError(full ? ExitCode::NoDeviceMemory : ExitCode::Resource,
                      "GPU " + std::to_string(index_) + ": " + text_of(result),
                      {.operation = std::string(call),
                       .advice = full ? "Use a smaller batch or smaller buckets."
                                      : "Look for Xid lines in `dmesg`. An error of one of your "
                                        "own kernels is reported here, too."});
}

void* Gpu::make_stream() {
  const Current current(*this);
  void* stream = nullptr;
  require(cuda().stream_create(&stream, kStreamNonBlocking), "cuStreamCreate");
  return stream;
}

void Gpu::destroy_stream(void* stream) noexcept {
  void* own = nullptr;
  if (!stream || cuda().context_push(context_) != kCudaSuccess) return;
  cuda().stream_destroy(stream);
  cuda().context_pop(&own);
}

GpuEvent Gpu::record(void* stream) {
  const Current current(*this);
  void* event = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      event = events_.back();
      events_.pop_back();
    }
  }
  if (!event) require(cuda().event_create(&event, kEventDisableTiming), "cuEventCreate");
  GpuEvent recorded(shared_from_this(), event);
  require(cuda().event_record(event, stream), "cuEventRecord");
  return recorded;
}

void Gpu::put_back(void* event) noexcept {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void Gpu::wait_for(void* stream, const GpuEvent& event) {
  const Current current(*this);
  require(cuda().stream_wait_event(stream, event.handle(), 0), "cuStreamWaitEvent");
}

bool Gpu::reached(const GpuEvent& event) {
  const Current current(*this);
  const int result = cuda().event_query(event.handle());
  if (result == kCudaNotReady) return false;
  require(result, "cuEventQuery");
  return true;
}

std::shared_ptr<void> Gpu::allocate(std::size_t bytes) {
  const Current current(*this);
  CudaAddress address = 0;
  require(cuda().memory_allocate(&address, std::max<std::size_t>(bytes, 1)), "cuMemAlloc");
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)),
          [gpu = shared_from_this()](void* memory) {
            void* own = nullptr;
            if (gpu->cuda().context_push(gpu->context_) != kCudaSuccess) return;
            gpu->cuda().memory_free(address_of(memory));
            gpu->cuda().context_pop(&own);
          }};
}

void Gpu::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0 || to == from) return;
  const Current current(*this);
  require(cuda().copy_async(address_of(to), address_of(from), bytes, stream), "cuMemcpyAsync");
}

void Gpu::clear(void* at, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  const Current current(*this);
  require(cuda().fill_async(address_of(at), 0, bytes, stream), "cuMemsetD8Async");
}

void Gpu::load_fold(kernel::Combine op, DType dtype) {
  const Current current(*this);
  kernel_named(kernel::cuda::fold_kernel_name(op, dtype));
}

void Gpu::fold(kernel::Combine op, DType dtype, const kernel::cuda::FoldArguments& arguments,
               void* stream) {
  launch(kernel::cuda::fold_kernel_name(op, dtype), &arguments,
         (arguments.count + kThreads - 1) / kThreads, stream);
}

void Gpu::launch(const std::string& kernel, const void* arguments, std::uint64_t blocks,
                 void* stream) {
  if (blocks == 0) return;
  const Current current(*this);
  void* parameters[] = {const_cast<void*>(arguments)};
  require(cuda().launch(kernel_named(kernel), static_cast<unsigned>(std::min(blocks, kMostBlocks)),
                        1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr),
          "cuLaunchKernel");
}

void Gpu::load_kernels() {
  const int result = cuda().module_load(&module_, library_->kernels.data());
  if (result == kCudaSuccess) return;
  throw ConfigError("GPU " + std::to_string(index_) + ": " + text_of(result) +
                        ". Trireme's kernels were compiled by " +
                        kernel::cuda::kernel_image_origin() + ", and the driver is for CUDA " +
                        cuda_version_text(library_->driver_version),
                    {.operation = "cuModuleLoadData",
                     .advice = "Install a newer driver, or build with "
                               "TRIREME_CUDA_ARCHITECTURES of this GPU."});
}

void* Gpu::kernel_named(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (!module_) load_kernels();
  void*& function = functions_[name];
  if (!function) {
    require(cuda().module_function(&function, module_, name.c_str()), "cuModuleGetFunction");
  }
  return function;
}

}  // namespace trireme::inline v0::comm::nccl
