// Gpu: the primary context of a GPU, which LibTorch uses as well, with streams, events, memory and
// this build's kernels. Failing calls throw ResourceError with CUDA's error text. Thread safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/nccl/gpu_library.h"
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm::nccl {

class Gpu;

/// A recorded CUDA event. The destructor returns it to its Gpu for reuse.
class GpuEvent {
 public:
  GpuEvent() = default;
  GpuEvent(std::shared_ptr<Gpu> gpu, void* handle) : gpu_(std::move(gpu)), handle_(handle) {}
  GpuEvent(GpuEvent&& other) noexcept
      : gpu_(std::move(other.gpu_)), handle_(std::exchange(other.handle_, nullptr)) {}
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~GpuEvent();
  void* handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<Gpu> gpu_;
  void* handle_ = nullptr;
};

class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  Gpu(std::shared_ptr<const GpuLibrary> library, int index);
  ~Gpu();
  Gpu(const Gpu&) = delete;

  /// While it lives, this GPU's context is current in the calling thread.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;

   private:
    const Gpu& gpu_;
  };

  int index() const noexcept { return index_; }
  Device device() const noexcept { return {DeviceKind::Cuda, index_}; }
  const CudaApi& cuda() const noexcept { return library_->cuda; }
  const NcclApi& nccl() const noexcept { return library_->nccl; }
  /// True if this build contains kernels.
  bool can_fold() const noexcept { return !library_->kernels.empty(); }
  void require(int result, std::string_view call) const;

  // All of these make the context current themselves.
  void* make_stream();  // does not synchronize with the default stream
  void destroy_stream(void* stream) noexcept;
  GpuEvent record(void* stream);
  void wait_for(void* stream, const GpuEvent& event);
  bool reached(const GpuEvent& event);
  std::shared_ptr<void> allocate(std::size_t bytes);  // freed with its last owner
  void copy(void* to, const void* from, std::size_t bytes, void* stream);
  void clear(void* at, std::size_t bytes, void* stream);
  /// Loads the kernel of fold(). CUDA may wait for the GPU's other work then, so call it where this
  /// does no harm.
  void load_fold(kernel::Combine op, DType dtype);
  void fold(kernel::Combine op, DType dtype, const kernel::cuda::FoldArguments& arguments,
            void* stream);
  /// Starts a kernel of kernels.cu that takes one parameter, in `blocks` blocks (4096 at most) of
  /// 256 threads.
  void launch(const std::string& kernel, const void* arguments, std::uint64_t blocks, void* stream);

 private:
  friend class GpuEvent;
  std::string text_of(int result) const;
  /// Throws ConfigError if the kernels are too new for the driver, or not for this GPU.
  void load_kernels();
  void* kernel_named(const std::string& name);
  void put_back(void* event) noexcept;

  const std::shared_ptr<const GpuLibrary> library_;
  const int index_;
  int device_ = 0;
  void* context_ = nullptr;
  std::mutex mutex_;
  std::vector<void*> events_;  // free, for reuse
  void* module_ = nullptr;     // the kernels, loaded on first use
  std::map<std::string, void*> functions_;
};

}  // namespace trireme::inline v0::comm::nccl
