// A region that a transport registers but peers cannot map: the caller's memory, or page-aligned
// zeroed memory of this process if the caller passes none.
#pragma once

#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// Throws ResourceError.
Region private_region(RegionId id, std::span<std::byte> bytes);

}  // namespace trireme::inline v0::net
