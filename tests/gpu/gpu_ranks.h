// run_gpus(n, body): n ranks over the simulated network, each with its own fake GPU.
//
// TRIREME_TEST_GPUS=real: over shared memory and a real clock, each with its own GPU of this
// machine, by its driver and NCCL. Only tests that do not ask the fake can run so: tools/gpu_pass
// names them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/collectives/leaves.h"
#include "tests/gpu/fake_gpu.h"
#include "trireme/comm/nccl/gpu_group.h"
#include "trireme/comm/simulate.h"

namespace trireme::test {

/// The fake CUDA and NCCL, opened once as a program opens the real ones.
std::shared_ptr<const comm::nccl::GpuLibrary> fake_library();
FakeGpu& fake_gpu();

/// Waits for the stream's work, at most a minute, and destroys the stream.
void finish(comm::nccl::Gpu& gpu, void* stream);

/// A block of a GPU's memory.
class OnGpu {
 public:
  OnGpu(std::shared_ptr<comm::nccl::Gpu> gpu, const Bytes& values);
  OnGpu(std::shared_ptr<comm::nccl::Gpu> gpu, std::size_t bytes) : OnGpu(gpu, Bytes(bytes)) {}
  /// The buffer keeps the memory alive. `stream`: the stream that orders its writes and reads.
  Buffer buffer(DType dtype, void* stream = nullptr) const;
  Bytes bytes() const;
  void* data() const { return memory_.get(); }
  /// Drops this owner; buffers may still hold the memory.
  void let_go() { memory_.reset(); }

 private:
  std::shared_ptr<comm::nccl::Gpu> gpu_;
  std::shared_ptr<void> memory_;
  std::size_t bytes_;
};

struct GpuRank {
  comm::SimulatedRank& context;
  comm::Communicator& world;
  std::shared_ptr<comm::nccl::Gpu> gpu;
  int rank, size;
  OnGpu on_gpu(const Bytes& values) const { return {gpu, values}; }
};

struct GpuRun {
  std::uint64_t seed = 1;
  Duration timeout = std::chrono::seconds(30);
  bool reproducible = true;
  std::string algorithm = "auto";
  bool expect_leftovers = false;  // a GPU that hangs may keep what it had
  bool keeps_memory = false;      // something must be left
  bool expect_leave = false;      // no communicator is aborted
};
/// Fails if the fake library saw a violation, or if memory, streams or communicators are left. On
/// real GPUs a run of more ranks than GPUs is left out, and a line says so.
void run_gpus(int size, const std::function<void(GpuRank&)>& body, const GpuRun& run = {});

}  // namespace trireme::test
