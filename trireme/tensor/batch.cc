#include "trireme/tensor/batch.h"

#include "trireme/base/error.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0 {

const at::Tensor& MicroBatch::field(std::string_view name) const {
  std::string known;
  for (const auto& [field, tensor] : fields) {
    if (field == name) return tensor;
    known += (known.empty() ? "" : ", ") + field;
  }
  throw ConfigError(
      "the batch has no field '" + std::string(name) + "'",
      {.operation = "batch",
       .advice = known.empty() ? "It has no fields at all." : "It has: " + known + "."});
}

MicroBatch on_device(MicroBatch micro, Device device) {
  const at::Device here = tensor::at_device(device);
  for (auto& [name, field] : micro.fields)
    if (field.device() != here) field = field.to(here, /*non_blocking=*/field.is_pinned());
  return micro;
}

}  // namespace trireme::inline v0
