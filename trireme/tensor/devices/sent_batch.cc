#include "trireme/tensor/devices/sent_batch.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::tensor {

Batch SentBatch::arrive() {
  if (sent) {
    const c10::Stream reader = c10::impl::VirtualGuardImpl(sent->device_type()).getStream(device);
    sent->block(reader);
    for (const MicroBatch& micro : batch.micro)
      for (const auto& [name, field] : micro.fields) field.record_stream(reader);
  }
  return std::move(batch);
}

SentBatch BatchSender::send(Batch batch) {
  const at::Device there = at_device(device_);
  if (there.is_cpu()) return {std::move(batch), there, std::nullopt};
  if (!stream_) stream_ = c10::impl::VirtualGuardImpl(there.type()).getStreamFromGlobalPool(there);
  const c10::StreamGuard guard(*stream_);
  for (MicroBatch& micro : batch.micro)
    for (auto& [name, field] : micro.fields) field = on_device(field, there);
  SentBatch result{std::move(batch), there, c10::Event(there.type())};
  result.sent->record(*stream_);
  return result;
}

}  // namespace trireme::inline v0::tensor
