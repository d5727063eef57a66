// An exchange over the job's own group, for tests that connect their own transports; otherwise the
// launcher's coordinator provides it at a job's start.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/net/connect.h"

namespace trireme::test {

inline net::Exchange exchange_over(comm::Communicator& world) {
  return [&world](const std::string& mine) {
    constexpr std::size_t kLongest = 128;
    std::vector<std::uint8_t> in(kLongest), out(kLongest * static_cast<std::size_t>(world.size()));
    std::memcpy(in.data(), mine.data(), std::min(mine.size(), kLongest - 1));
    all_gather(world, in, out);
    std::vector<std::string> all;
    for (std::size_t rank = 0; rank < out.size() / kLongest; ++rank) {
      all.emplace_back(reinterpret_cast<const char*>(out.data()) + rank * kLongest);
    }
    return all;
  };
}

}  // namespace trireme::test
