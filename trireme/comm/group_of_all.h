// group_of_all(): a group of all ranks of a communicator. Its calls are independent of those of the
// communicator, so another thread or object may use it.
#pragma once

#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

/// As Communicator::subgroup(): all ranks call it with the same name, and no message is sent.
inline std::shared_ptr<Communicator> group_of_all(Communicator& world, std::string_view name) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.subgroup(ranks, name);
}

}  // namespace trireme::inline v0::comm
