#include "trireme/tensor/device_graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>

#include <utility>

// Newer releases of LibTorch have graphs of any device, older ones those of CUDA, whose header needs
// CUDA's own.
#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define TRIREME_DEVICE_GRAPHS
#elif defined(TRIREME_CUDA_GRAPHS)
#include <ATen/cuda/CUDAGraph.h>
#endif

namespace trireme::inline v0::tensor {
namespace {

void order(const c10::Stream& before, const c10::Stream& after) {
  c10::Event event(before.device_type());
  event.record(before);
  event.block(after);
}

}  // namespace

RecordableStream::RecordableStream(at::Device device)
    : guards_(device.type()),
      own_(guards_.getStreamFromGlobalPool(device)),
      before_(guards_.exchangeStream(own_)) {
  order(before_, own_);
}

RecordableStream::~RecordableStream() {
  try {
    order(own_, before_);
  } catch (const c10::Error&) {  // a device that has failed: nothing runs there any more
  }
  guards_.exchangeStream(before_);
}

#if defined(TRIREME_DEVICE_GRAPHS)

struct DeviceGraph::Recording {
  explicit Recording(at::Device device) : graph(at::create_graph_impl(device.type())) {}
  // Other threads may allocate meanwhile.
  void begin(const Recording* beside) {
    graph->capture_begin(beside != nullptr ? beside->graph->pool() : c10::MempoolId_t{0, 0},
                         at::GraphCaptureMode::ThreadLocal);
  }
  std::unique_ptr<at::GraphImplInterface> graph;
};

std::string DeviceGraph::unsupported(at::Device device) {
  if (device.is_cpu()) return "the CPU has no graphs";
  if (at::has_graph_impl(device.type())) return {};
  return "this LibTorch has no graphs for " + device.str();
}

#elif defined(TRIREME_CUDA_GRAPHS)

struct DeviceGraph::Recording {
  explicit Recording(at::Device) : graph(std::make_unique<at::cuda::CUDAGraph>()) {}
  void begin(const Recording* beside) {
    graph->capture_begin(beside != nullptr ? beside->graph->pool() : c10::MempoolId_t{0, 0},
                         cudaStreamCaptureModeThreadLocal);
  }
  std::unique_ptr<at::cuda::CUDAGraph> graph;
};

std::string DeviceGraph::unsupported(at::Device device) {
  if (device.is_cpu()) return "the CPU has no graphs";
  return device.is_cuda() ? "" : "this LibTorch has graphs for CUDA only";
}

#else

struct DeviceGraph::Recording {
  struct None {
    void capture_end() {}
    void replay() {}
    void reset() {}
  };
  explicit Recording(at::Device) : graph(std::make_unique<None>()) {}
  void begin(const Recording*) { TORCH_CHECK(false, "this build has no graphs"); }
  std::unique_ptr<None> graph;
};

std::string DeviceGraph::unsupported(at::Device device) {
  if (device.is_cpu()) return "the CPU has no graphs";
  return "graphs need LibTorch 2.13, or a build that found CUDA's headers (CUDA_HOME)";
}

#endif

DeviceGraph::DeviceGraph(at::Device device, const std::function<void()>& body,
                         const DeviceGraph* beside)
    : device_(device), recording_(std::make_unique<Recording>(device)) {
  const c10::DeviceGuard guard(device);
  recording_->begin(beside != nullptr ? beside->recording_.get() : nullptr);
  try {
    body();
  } catch (...) {
    try {
      recording_->graph->capture_end();
    } catch (const c10::Error&) {  // because of the first error
    }
    throw;
  }
  recording_->graph->capture_end();
}

DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::replay() {
  const c10::DeviceGuard guard(device_);
  recording_->graph->replay();
}

}  // namespace trireme::inline v0::tensor
