// A made-up CUDA driver and NCCL for tests: a shared library with their symbols that the loader
// (comm/nccl/gpu_library.h) opens in their place. Device memory is host memory, a stream is a queue
// that moves only when somebody asks an event, and all "GPUs" are in one process.
//
// It is stricter than the real ones: it counts as a violation what these would answer by undefined
// behaviour (memory that is gone, a call while the communicator is in progress, ranks whose calls
// differ, no current context).
#pragma once

#include <cstddef>
#include <string>

namespace trireme::test {

class FakeGpu {
 public:
  /// Forgets faults and violations; the library's objects stay.
  virtual void reset() = 0;
  virtual std::string first_violation() = 0;  // empty: none
  /// Memory blocks, streams and communicators that were not given back.
  virtual std::size_t leftovers() = 0;
  virtual std::string leftovers_text() = 0;

  /// Looks at events that pass before the GPU has carried out one group of calls.
  virtual void set_latency(int looks) = 0;
  /// Communicators move nothing from now on.
  virtual void freeze() = 0;
  /// And even aborting does not make their kernels go.
  virtual void freeze_for_good() = 0;
  virtual void thaw() = 0;
  /// What ncclCommGetAsyncError says on that GPU.
  virtual void set_async_error(int gpu, int error) = 0;
  /// ncclCommInitRankConfig fails on that GPU.
  virtual void refuse_communicator(int gpu) = 0;
  /// Every CUDA call on that GPU fails with CUDA_ERROR_ILLEGAL_ADDRESS.
  virtual void break_gpu(int gpu) = 0;
  /// What is given to `stream` after this waits for open_gates().
  virtual void close_gate(void* stream) = 0;
  virtual void open_gates() = 0;
  /// Calls that NCCL was given: "ncclAllReduce", "ncclSend" …
  virtual int calls(const std::string& name) = 0;

 protected:
  ~FakeGpu() = default;
};

/// The symbol by which a test reaches it: dlsym(handle, "trireme_fake_gpu").
using FakeGpuGetter = FakeGpu* (*)();

}  // namespace trireme::test
