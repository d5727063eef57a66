#include "trireme/comm/negotiate/negotiate.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/negotiate/negotiate_core.h"

namespace trireme::inline v0::comm {
namespace {

// A device's buffer belongs to a stream of the thread that submits it, but another thread makes the
// call.
void check_memory(const std::string& name, const Buffer& buffer) {
  if (buffer.device.kind == DeviceKind::Cpu) return;
  throw ConfigError(
      name + " lies on a device, and a Negotiator takes the host's memory only",
      {.operation = "negotiate", .advice = "Call the Communicator's method instead."});
}

}  // namespace

Negotiator::Negotiator(Communicator& world, const NegotiatorOptions& options)
    : core_(std::make_shared<Core>(world, options)) {
  core_->listen_to_all();
}

Negotiator::~Negotiator() { core_->close(); }

Negotiator::Statistics Negotiator::statistics() const { return core_->statistics(); }

Work Negotiator::all_reduce(std::string name, Buffer inout, ReduceOp op) {
  check_memory(name, inout);
  const Signature signature{
      .kind = OpKind::AllReduce, .op = op, .dtype = inout.dtype, .count = inout.count};
  return core_->submit(std::move(name), signature,
                       [inout = std::move(inout), op](Communicator& group, const OpOptions& how) {
                         return group.all_reduce(inout, op, how);
                       });
}

Work Negotiator::broadcast(std::string name, Buffer inout, int root) {
  check_memory(name, inout);
  const Signature signature{
      .kind = OpKind::Broadcast, .dtype = inout.dtype, .root = root, .count = inout.count};
  return core_->submit(std::move(name), signature,
                       [inout = std::move(inout), root](Communicator& group, const OpOptions& how) {
                         return group.broadcast(inout, root, how);
                       });
}

Work Negotiator::all_gather(std::string name, Buffer in, Buffer out) {
  check_memory(name, in);
  check_memory(name, out);
  if (out.count != in.count * static_cast<std::size_t>(core_->size()) || out.dtype != in.dtype) {
    throw ConfigError("out of " + name + " must have in.count x size elements of in's type",
                      {.operation = "negotiate", .advice = "Correct the call."});
  }
  const Signature signature{.kind = OpKind::AllGather, .dtype = in.dtype, .count = in.count};
  return core_->submit(
      std::move(name), signature,
      [in = std::move(in), out = std::move(out)](Communicator& group, const OpOptions& how) {
        return group.all_gather(in, out, how);
      });
}

}  // namespace trireme::inline v0::comm
