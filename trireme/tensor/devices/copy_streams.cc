#include "trireme/tensor/devices/copy_streams.h"

#include <c10/core/StreamGuard.h>

namespace trireme::inline v0::tensor {

CopyStreams::CopyStreams(at::Device device)
    : device_(device),
      guards_(device.type()),
      store_(guards_.getStreamFromGlobalPool(device)),
      fetch_(guards_.getStreamFromGlobalPool(device)) {}

void CopyStreams::store(const at::Tensor& from, const at::Tensor& to) const {
  mark(computing()).block(store_);
  const c10::StreamGuard guard(store_);
  to.copy_(from, /*non_blocking=*/true);
}

void CopyStreams::fetch(const at::Tensor& from, const at::Tensor& to) const {
  mark(computing()).block(fetch_);
  const c10::StreamGuard guard(fetch_);
  to.copy_(from, /*non_blocking=*/true);
}

void CopyStreams::hold_until_stored(const at::DataPtr& memory) const {
  guards_.recordDataPtrOnStream(memory, store_);
}

void CopyStreams::hold_until_fetched(const at::DataPtr& memory) const {
  guards_.recordDataPtrOnStream(memory, fetch_);
}

c10::Event CopyStreams::mark(const c10::Stream& stream) const {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

}  // namespace trireme::inline v0::tensor
