// CUDA's graphs. LibTorch (up to 2.14 at least) has a separate class for them, whose header needs
// CUDA's headers: CMakeLists.txt says whether they are there.
#include "trireme/tensor/devices/graph_recording.h"

#ifdef TRIREME_CUDA_GRAPHS
#include <ATen/cuda/CUDAGraph.h>
#endif

namespace trireme::inline v0::tensor {

#ifdef TRIREME_CUDA_GRAPHS

namespace {

class CudaRecording final : public GraphRecording {
 public:
  void begin(c10::MempoolId_t pool) override {
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  }
  void end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }

 private:
  mutable at::cuda::CUDAGraph graph_;  // pool() is not const
};

}  // namespace

std::unique_ptr<GraphRecording> make_cuda_recording() { return std::make_unique<CudaRecording>(); }

#else

std::unique_ptr<GraphRecording> make_cuda_recording() { return nullptr; }

#endif

}  // namespace trireme::inline v0::tensor
