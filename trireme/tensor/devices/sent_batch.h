// BatchSender: copies batches to a device ahead of the step that reads them. The copies run from
// pinned memory in a separate stream, beside the device's other work.
#pragma once

#include <c10/core/Event.h>

#include <optional>

#include "trireme/tensor/batch.h"

namespace trireme::inline v0::tensor {

/// A batch on its device, whose copies may be under way.
struct SentBatch {
  Batch batch;
  at::Device device = at::kCPU;
  std::optional<c10::Event> sent;  // none: nothing was copied
  /// The batch. The caller's current stream waits for the copies; the host does not.
  Batch arrive();
};

class BatchSender {
 public:
  /// On the CPU, send() leaves batches as they are.
  explicit BatchSender(Device device) : device_(device) {}
  /// Starts to copy. One thread at a time.
  SentBatch send(Batch batch);

 private:
  const Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace trireme::inline v0::tensor
