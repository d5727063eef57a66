// Checks for resources before gRPC starts. If gRPC cannot start threads, it never answers and never
// ends; without descriptors it aborts.
#pragma once

namespace trireme::inline v0::rendezvous {

/// Throws ResourceError unless this process can have as many more threads and descriptors as one
/// gRPC server or client needs on any machine, and some to spare.
void require_room_for_grpc();

}  // namespace trireme::inline v0::rendezvous
