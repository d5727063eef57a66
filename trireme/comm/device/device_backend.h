// DeviceBackend: the backend of calls on the memory of this rank's device (nccl/ has the only one).
// When a call is in a stream of the device, the engine begins the next one; the backend ends the
// call's Work later. A failed Work ends only when the device no longer accesses its buffers.
//
// prepare(), allocate(), busy() and gone() may be called from any thread, the rest in the progress
// context.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/comm/backend.h"
#include "trireme/comm/communicator.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

struct Operation;

class DeviceBackend : public Backend {
 public:
  /// Prepares `operation`, whose buffers lie on a device: sets its algorithm and `device`.
  /// `wanted`: the algorithm that the call or the communicator names. ConfigError if it cannot run.
  virtual void prepare(Operation& operation, std::string_view wanted) = 0;
  virtual Arena allocate(std::size_t bytes, Device device) = 0;
  /// Runs the user's send, whose own header is filled in and has `tag`.
  virtual void send(const std::shared_ptr<Call>& call, int peer, net::Tag tag) = 0;
  /// Goes on with a receive, whose matching header has arrived with `tag`.
  virtual void answer(const std::shared_ptr<Call>& call, int peer, net::Tag tag) = 0;
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

}  // namespace trireme::inline v0::comm
