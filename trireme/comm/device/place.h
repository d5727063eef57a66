// place(): decides how a call runs on the memory of its buffers: directly in the host's, over nccl/
// in that of this rank's GPU, or through the host's (staging/) for another device. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/buffer.h"
#include "trireme/comm/calls/operation.h"

namespace trireme::inline v0::comm {

class Engine;

/// The device of all buffers of `operation`; ConfigError if they lie on different ones.
Device device_of(const Operation& operation);

/// Prepares `operation` for the device that its buffers lie on, if that is not the CPU. `named`:
/// the call's algorithm. ConfigError if device or algorithm do not fit.
void place(Operation& operation, Engine& engine, std::string_view named);

/// "GPU 1", or "device 1 of another kind".
std::string text_of(Device device);
/// Throws ConfigError.
[[noreturn]] void refuse_device(Device device, int rank);

}  // namespace trireme::inline v0::comm
