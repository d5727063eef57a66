// ServerFigures: the counts of a job's servers since they began (ParameterClient::figures()). A
// gradient counts once at each server, because each has a part of it. A value.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace trireme::inline v0::ps {

struct ServerFigures {
  int servers = 0;
  std::int64_t updates = 0;                        // of the server that has the fewest
  std::vector<std::int64_t> pushes;                // gradients that were applied, by worker
  std::int64_t dropped = 0;                        // gradients that were not finite
  std::int64_t late = 0;                           // gradients that backup workers made needless
  std::int64_t repeated = 0;                       // pushes that came again after a lost connection
  std::map<std::int64_t, std::int64_t> staleness;  // gradients by staleness

  /// MismatchError for another text.
  static ServerFigures from_text(std::string_view text);
};

}  // namespace trireme::inline v0::ps
