#include "trireme/testing/emulated_device/graphs.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)

#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <string>
#include <utility>

#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {
namespace {

class EmulatedGraph final : public at::GraphImplInterface {
 public:
  ~EmulatedGraph() override { forget(); }

  void capture_begin(c10::MempoolId_t, at::GraphCaptureMode) override {
    stream_ = current_stream(current_device());
    Runtime::get().begin_recording(stream_);
  }
  void capture_end() override { recording_ = Runtime::get().end_recording(stream_); }
  void instantiate() override {}
  void replay() override {
    TORCH_CHECK(recording_, "an empty graph is replayed");
    Runtime::get().replay(*recording_, current_stream(current_device()));
  }
  void reset() override { forget(); }
  c10::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}

 private:
  void forget() {
    Runtime* const runtime = Runtime::find();
    if (recording_ && runtime) runtime->forget(*recording_);
    recording_ = nullptr;
  }
  StreamIndex stream_ = 0;
  std::shared_ptr<Recording> recording_;
};

}  // namespace

void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(c10::DeviceType::PrivateUse1),
      [](at::GraphImplArgs) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<EmulatedGraph>();
      });
}

}  // namespace trireme::inline v0::testing

#else

namespace trireme::inline v0::testing {
void register_graphs() {}
}  // namespace trireme::inline v0::testing

#endif
