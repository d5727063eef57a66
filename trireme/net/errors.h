// The texts of errors that all transports share.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// PeerLost: `rank` found that `peer` is gone while doing `operation`.
std::exception_ptr peer_lost(int rank, int peer, std::string_view operation,
                             std::string_view detail = {});
/// MismatchError: `rank` expected `expected` bytes from `peer`, but `peer` sent `sent` bytes.
std::exception_ptr length_mismatch(int rank, int peer, Tag tag, std::size_t expected,
                                   std::size_t sent);
/// PeerLost: this rank's own transport was closed during an operation.
std::exception_ptr closed(int rank);
/// CheckFailure unless 0 <= peer < size.
void check_peer(int peer, int size);

}  // namespace trireme::inline v0::net
