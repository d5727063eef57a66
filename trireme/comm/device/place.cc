#include "trireme/comm/device/place.h"

#include "trireme/base/error.h"
#include "trireme/comm/device/device_backend.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/nccl/gpu_plan.h"

namespace trireme::inline v0::comm {

Device device_of(const Operation& operation) {
  Device found;
  bool any = false;
  const auto visit = [&](const Buffer& buffer) {
    const bool on_host = buffer.device.kind == DeviceKind::Cpu;
    if (on_host && buffer.count == 0 && !buffer.data) return;  // this rank has no such buffer
    if (any && !(buffer.device == found)) {
      throw ConfigError("the buffers of one call lie on different devices",
                        {.operation = title_of(operation), .advice = "Copy them to one first."});
    }
    found = buffer.device;
    any = true;
  };
  visit(operation.in);
  visit(operation.out);
  for (const Term& term : operation.terms) visit(term.value);
  return found;
}

void place(Operation& operation, Engine& engine, std::string_view named) {
  const std::string& usual = engine.facts.options.algorithm;
  const Device where = operation.device ? Device{} : device_of(operation);
  const bool on_gpu = operation.on_device || (where.kind != DeviceKind::Cpu && engine.device);
  const bool fits =
      on_gpu ? named.empty() || named == "auto" || named == nccl::kNative : named != nccl::kNative;
  if (!fits) {
    throw ConfigError(
        on_gpu ? "algorithm " + std::string(named) +
                     " works on CPU memory only, but this buffer lies on a GPU; use auto or "
                     "nccl-native"
               : "algorithm nccl-native is for GPU memory, and this buffer lies in the host's",
        {.rank = engine.facts.world_rank(),
         .operation = std::string(name_of(operation.called())),
         .advice = "Correct the call."});
  }
  if (where.kind != DeviceKind::Cpu) {
    if (engine.device) {
      engine.device->prepare(operation, named.empty() ? usual : named);
    } else if (engine.copies) {
      stage(operation, where, engine.copies, engine.facts);
    } else {
      throw ConfigError(
          "a buffer lies on a device, and " + engine.facts.options.name + " moves CPU memory only",
          {.rank = engine.facts.world_rank(),
           .operation = title_of(operation),
           .label = operation.label,
           .advice = "Use comm.transport nccl, or Communicator::stage_through()."});
    }
  }
}

std::string text_of(Device device) {
  const std::string index = std::to_string(device.index);
  return device.kind == DeviceKind::Cuda ? "GPU " + index : "device " + index + " of another kind";
}

void refuse_device(Device device, int rank) {
  throw ConfigError(text_of(device) + " is not this rank's",
                    {.rank = rank,
                     .operation = "allocate",
                     .advice = "Use comm.transport nccl, and job.device()."});
}

}  // namespace trireme::inline v0::comm
