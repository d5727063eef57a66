// A fake CUDA driver and NCCL for tests: a shared library with their symbols that the loader
// (comm/nccl/gpu_library.h) opens instead of them. Device memory is host memory, a stream is a
// queue that moves only when an event is queried, and all "GPUs" are in one process.
//
// It is stricter than the real ones: what is undefined behaviour there counts as a violation (freed
// memory, a call while the communicator is in progress, ranks whose calls differ, no current
// context).
#pragma once

#include <cstddef>
#include <string>

namespace trireme::test {

class FakeGpu {
 public:
  /// Forgets faults and violations; the library's objects stay.
  virtual void reset() = 0;
  virtual std::string first_violation() = 0;  // empty: none
  /// Memory blocks, streams and communicators that were not freed.
  virtual std::size_t leftovers() = 0;
  virtual std::string leftovers_text() = 0;

  /// Number of event queries that pass before the GPU has carried out one group of calls.
  virtual void set_latency(int looks) = 0;
  /// From now on communicators move no data.
  virtual void freeze() = 0;
  /// In addition, aborting does not end their kernels, so it does not return.
  virtual void freeze_for_good() = 0;
  virtual void thaw() = 0;
  /// The result of ncclCommGetAsyncError on that GPU.
  virtual void set_async_error(int gpu, int error) = 0;
  /// ncclCommInitRankConfig fails on that GPU.
  virtual void refuse_communicator(int gpu) = 0;
  /// The driver is too old for the kernels.
  virtual void refuse_kernels() = 0;
  /// Every CUDA call on that GPU fails with CUDA_ERROR_ILLEGAL_ADDRESS.
  virtual void break_gpu(int gpu) = 0;
  /// Operations given to `stream` after this wait for open_gates().
  virtual void close_gate(void* stream) = 0;
  virtual void open_gates() = 0;
  /// How often a function was called: "ncclAllReduce", "ncclSend" ..., "cuMemFree",
  /// "cuModuleGetFunction".
  virtual int calls(const std::string& name) = 0;

 protected:
  ~FakeGpu() = default;
};

/// The symbol by which a test reaches the fake: dlsym(handle, "trireme_fake_gpu").
using FakeGpuGetter = FakeGpu* (*)();

}  // namespace trireme::test
