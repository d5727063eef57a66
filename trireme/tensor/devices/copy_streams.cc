#include "trireme/tensor/devices/copy_streams.h"

#include <c10/core/StreamGuard.h>

namespace trireme::inline v0::tensor {

CopyStreams::CopyStreams(at::Device device)
    : device_(device),
      guards_(device.type()),
      store_(guards_.getStreamFromGlobalPool(device)),
      fetch_(guards_.getStreamFromGlobalPool(device)) {}

void CopyStreams::copy(const at::Tensor& from, const at::Tensor& to,
                       const c10::Stream& stream) const {
  mark(computing()).block(stream);
  const c10::StreamGuard guard(stream);
  to.copy_(from, /*non_blocking=*/true);
}

c10::Event CopyStreams::mark(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

}  // namespace trireme::inline v0::tensor
