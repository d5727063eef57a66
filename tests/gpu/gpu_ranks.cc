#include "tests/gpu/gpu_ranks.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

namespace trireme::test {

using comm::nccl::backend_on;
using comm::nccl::Gpu;

std::shared_ptr<const comm::nccl::GpuLibrary> fake_library() {
  static const auto library = [] {
    auto opened = std::make_shared<comm::nccl::GpuLibrary>(
        *comm::nccl::open_gpu_library({TRIREME_FAKE_GPU, TRIREME_FAKE_GPU}));
    static const std::byte stands_for_kernels[1] = {};  // also if this build has none
    opened->kernels = stands_for_kernels;
    return opened;
  }();
  return library;
}

FakeGpu& fake_gpu() {
  void* const handle = dlopen(TRIREME_FAKE_GPU, RTLD_NOW | RTLD_NOLOAD);
  return *reinterpret_cast<FakeGpuGetter>(dlsym(handle, "trireme_fake_gpu"))();
}

OnGpu::OnGpu(std::shared_ptr<Gpu> gpu, const Bytes& values)
    : gpu_(std::move(gpu)), memory_(gpu_->allocate(values.size())), bytes_(values.size()) {
  if (bytes_ > 0) std::memcpy(memory_.get(), values.data(), bytes_);  // it is host memory
}

Buffer OnGpu::buffer(DType dtype, void* stream) const {
  return {memory_.get(), bytes_ / size_of(dtype),
          dtype,         {DeviceKind::Cuda, gpu_->index()},
          {stream},      memory_};
}

Bytes OnGpu::bytes() const {
  const auto* begin = static_cast<const std::byte*>(memory_.get());
  return {begin, begin + bytes_};
}

void run_gpus(int size, const std::function<void(GpuRank&)>& body, const GpuRun& run) {
  const auto library = fake_library();
  comm::SimulationOptions options;
  options.network.seed = run.seed;
  options.world.timeout = run.timeout;
  options.world.reproducible = run.reproducible;
  options.world.algorithm = run.algorithm;
  options.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    world.device = backend_on(Gpu::open(library, rank.rank));
  };
  const std::size_t before = fake_gpu().leftovers();
  comm::simulate(size, options, [&](comm::SimulatedRank& context) {
    GpuRank rank{context, *context.world, Gpu::open(library, context.rank), context.rank, size};
    body(rank);
  });
  EXPECT_EQ(fake_gpu().first_violation(), "");
  if (!run.expect_leftovers) {
    EXPECT_EQ(fake_gpu().leftovers(), before) << fake_gpu().leftovers_text();
  }
  if (run.keeps_memory) {
    EXPECT_GT(fake_gpu().leftovers(), before);
  }
  if (run.expect_leave) {
    EXPECT_EQ(fake_gpu().calls("ncclCommAbort"), 0);
    EXPECT_EQ(fake_gpu().calls("ncclCommDestroy"), size);
  }
  fake_gpu().reset();
}

}  // namespace trireme::test
