#include "tests/gpu/gpu_ranks.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tests/conformance/collectives/groups.h"

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

void finish(Gpu& gpu, void* stream) {
  const comm::nccl::GpuEvent end = gpu.record(stream);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!gpu.reached(end)) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("the GPU has not ended its work within a minute");
    std::this_thread::yield();
  }
  gpu.destroy_stream(stream);
}

namespace {

bool on_real_gpus() {
  const char* const gpus = std::getenv("TRIREME_TEST_GPUS");
  return gpus != nullptr && std::string_view(gpus) == "real";
}

void copy_now(Gpu& gpu, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (!on_real_gpus()) {
    std::memcpy(to, from, bytes);  // the fake's memory is the host's
    return;
  }
  void* const stream = gpu.make_stream();
  gpu.copy(to, from, bytes, stream);
  finish(gpu, stream);
}

// On a real clock: a GPU does not wait for a virtual one.
void run_real_gpus(int size, const std::function<void(GpuRank&)>& body, const GpuRun& run) {
  static const auto library = comm::nccl::open_gpu_library();
  const auto gpus = static_cast<int>(comm::nccl::list_gpus(*library).size());
  if (size > gpus) {
    std::printf("not run on %d GPUs: there are %d\n", size, gpus);
    return;
  }
  std::printf("run on %d GPUs\n", size);
  Group group{"shm", run.algorithm, size};
  group.prepare = [&](int rank, comm::CommunicatorOptions& options) {
    options.device = backend_on(std::make_shared<Gpu>(library, rank));
    options.timeout = run.timeout;
    options.reproducible = run.reproducible;
  };
  run_group(group, [&](comm::Communicator& world) {
    comm::SimulatedRank none;
    GpuRank rank{none, world, std::make_shared<Gpu>(library, world.rank()), world.rank(), size};
    body(rank);
  });
}

}  // namespace

OnGpu::OnGpu(std::shared_ptr<Gpu> gpu, const Bytes& values)
    : gpu_(std::move(gpu)), memory_(gpu_->allocate(values.size())), bytes_(values.size()) {
  copy_now(*gpu_, memory_.get(), values.data(), bytes_);
}

Buffer OnGpu::buffer(DType dtype, void* stream) const {
  return {memory_.get(), bytes_ / size_of(dtype),
          dtype,         {DeviceKind::Cuda, gpu_->index()},
          {stream},      memory_};
}

Bytes OnGpu::bytes() const {
  Bytes values(bytes_);
  copy_now(*gpu_, values.data(), memory_.get(), bytes_);
  return values;
}

void run_gpus(int size, const std::function<void(GpuRank&)>& body, const GpuRun& run) {
  if (on_real_gpus()) return run_real_gpus(size, body, run);
  const auto library = fake_library();
  comm::SimulationOptions options;
  options.network.seed = run.seed;
  options.world.timeout = run.timeout;
  options.world.reproducible = run.reproducible;
  options.world.algorithm = run.algorithm;
  options.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    world.device = backend_on(std::make_shared<Gpu>(library, rank.rank));
  };
  const std::size_t before = fake_gpu().leftovers();
  comm::simulate(size, options, [&](comm::SimulatedRank& context) {
    GpuRank rank{context, *context.world, std::make_shared<Gpu>(library, context.rank),
                 context.rank, size};
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
