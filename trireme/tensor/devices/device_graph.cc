#include "trireme/tensor/devices/device_graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>

#include <utility>

#include "trireme/tensor/devices/graph_recording.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)  // LibTorch 2.12
#include <ATen/core/GraphImplInterface.h>
#define TRIREME_GRAPHS_OF_ANY_DEVICE
#endif

namespace trireme::inline v0::tensor {
namespace {

void order(const c10::Stream& before, const c10::Stream& after) {
  c10::Event event(before.device_type());
  event.record(before);
  event.block(after);
}

#ifdef TRIREME_GRAPHS_OF_ANY_DEVICE
class AnyRecording final : public GraphRecording {
 public:
  explicit AnyRecording(at::DeviceType type) : graph_(at::create_graph_impl(type)) {}
  void begin(c10::MempoolId_t pool) override {
    graph_->capture_begin(pool, at::GraphCaptureMode::ThreadLocal);
  }
  void end() override { graph_->capture_end(); }
  void replay() override { graph_->replay(); }
  c10::MempoolId_t pool() const override { return graph_->pool(); }

 private:
  std::unique_ptr<at::GraphImplInterface> graph_;
};
#endif

// Null if the device has no graphs.
std::unique_ptr<GraphRecording> make_recording(at::Device device) {
#ifdef TRIREME_GRAPHS_OF_ANY_DEVICE
  if (at::has_graph_impl(device.type())) return std::make_unique<AnyRecording>(device.type());
#endif
  return device.is_cuda() ? make_cuda_recording() : nullptr;
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

DeviceGraph::DeviceGraph(at::Device device, const std::function<void()>& body,
                         const DeviceGraph* beside)
    : device_(device), recording_(make_recording(device)) {
  TORCH_CHECK(recording_ != nullptr, unsupported(device));
  const c10::DeviceGuard guard(device);
  recording_->begin(beside != nullptr ? beside->recording_->pool() : c10::MempoolId_t{0, 0});
  try {
    body();
  } catch (...) {
    try {
      recording_->end();
    } catch (const c10::Error&) {  // because of the first error
    }
    throw;
  }
  recording_->end();
}

DeviceGraph::~DeviceGraph() = default;

std::string DeviceGraph::unsupported(at::Device device) {
  if (device.is_cpu()) return "the CPU has no graphs";
  if (make_recording(device) != nullptr) return {};
  return device.is_cuda()
             ? "this build was made without CUDA's headers (cuda_runtime_api.h), which "
               "graphs need"
             : "this LibTorch has no graphs for " + device.str();
}

void DeviceGraph::replay() {
  const c10::DeviceGuard guard(device_);
  recording_->replay();
}

}  // namespace trireme::inline v0::tensor
