// DeviceBackend: the backend of calls on the memory of this rank's device. Such calls run in the
// order of a stream of the device: when one is in the stream, the engine begins the next, and the
// backend ends its Work later. A failed Work ends only when the device no longer accesses its
// buffers.
//
// prepare(), allocate() and busy() may be called from any thread, the rest in the progress context.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

class DeviceBackend : public Backend {
 public:
  /// Prepares `operation`, whose buffers lie on a device: sets its algorithm and `device`.
  /// `wanted`: what the call or the communicator names. ConfigError if it cannot run.
  virtual void prepare(Operation& operation, std::string_view wanted) = 0;
  virtual Arena allocate(std::size_t bytes, Device device) = 0;
  /// Runs a send or receive of the user, whose own header is filled in.
  virtual void run_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag) = 0;
  /// True while calls are open.
  virtual bool busy() const noexcept = 0;
  /// True if only this backend may end `call`.
  virtual bool holds(const Call& call) const noexcept = 0;
  /// The error of a call that the device did not end in time.
  virtual std::exception_ptr timeout(Duration waited, const std::string& operation,
                                     const std::string& label) const = 0;
  virtual void abort(const std::exception_ptr& error) noexcept = 0;
  /// Forgets the engine and begins to leave; gone() when nothing is left.
  virtual void detach() noexcept = 0;
  virtual bool gone() const noexcept = 0;
};

/// The device of all buffers of `operation`; ConfigError if they lie on different ones.
Device device_of(const Operation& operation);

/// Prepares `operation` for the device that its buffers lie on, if that is not the CPU. `named`:
/// the call's algorithm. ConfigError if device or algorithm do not fit. Any thread.
void place(Operation& operation, Engine& engine, std::string_view named);

/// "GPU 1", or "device 1 of another kind".
std::string text_of(Device device);
/// Throws ConfigError.
[[noreturn]] void refuse_device(Device device, int rank);

}  // namespace trireme::inline v0::comm
