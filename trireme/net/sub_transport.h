// SubTransport: some ranks of a transport as a group of their own. It maps ranks and mixes the
// group's id into every tag, and so needs no message to come about.
//
// All groups share the parent's connections, rings and progress. Regions are the parent's: their
// ids are not the group's own, so members tell one another by message. abort() aborts the parent,
// and with it every group over it; to let go of a SubTransport touches nothing. Errors of the
// parent name its ranks, not the group's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace net {

/// The same on all members, different for any other group: hashes the group that it is made from,
/// its members (ranks of the parent), its name, and how often that has been made before. 61 bits.
std::uint64_t group_id(std::uint64_t parent, std::span<const int> ranks, std::string_view name,
                       std::uint64_t times);

/// The group of `ranks` (of `parent`, which is one of them), numbered in that order. All members
/// must use the same `id`. A SubTransport as parent is looked through.
std::shared_ptr<Transport> make_sub_transport(std::shared_ptr<Transport> parent,
                                              std::vector<int> ranks, std::uint64_t id);

}  // namespace net
}  // namespace v0
}  // namespace trireme
