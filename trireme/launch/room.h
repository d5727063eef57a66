// Whether this process may have what gRPC wants, asked before gRPC starts: where threads are
// refused, it goes on without them, answers nobody and never ends; without descriptors it aborts.
#pragma once

namespace trireme {
inline namespace v0 {
namespace launch {

/// Throws ResourceError unless this process may have as many threads and descriptors more as gRPC
/// takes for one server or client on a machine of any size, and some to spare.
void require_room_for_grpc();

}  // namespace launch
}  // namespace v0
}  // namespace trireme
