// SubTransport: some ranks of a transport as a group of their own. It maps the ranks and mixes the
// group's id into every tag, so creating one needs no messages.
//
// All groups share the parent's connections, rings and progress. Regions belong to the parent, so
// their ids do not count from 0 in a group; members exchange them by message. abort() aborts the
// parent and with it all its groups. Destroying a SubTransport has no effect on the parent. Errors
// name the parent's ranks, not the group's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// Equal on all members, different for any other group: a 61-bit hash of the parent group's id, the
/// members (ranks of the parent), the name, and how often this group has been made before.
std::uint64_t group_id(std::uint64_t parent, std::span<const int> ranks, std::string_view name,
                       std::uint64_t times);

/// Makes the group of `ranks` (ranks of `parent`, including its own), numbered in that order. All
/// members must pass the same `id`. If `parent` is a SubTransport itself, its own parent is used.
std::shared_ptr<Transport> make_sub_transport(std::shared_ptr<Transport> parent,
                                              std::vector<int> ranks, std::uint64_t id);

}  // namespace trireme::inline v0::net
