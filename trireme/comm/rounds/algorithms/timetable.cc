#include "trireme/comm/rounds/algorithms/timetable.h"

#include <algorithm>

namespace trireme::inline v0::comm {

void Timetable::record(Algorithm& a) const {
  std::vector<Algorithm::Step> rounds;
  int end = 0;
  for (const Move& move : moves_) end = std::max(end, move.time + 1);
  while (static_cast<int>(rounds.size()) < end) rounds.push_back(a.round());
  for (const Move& move : moves_) {
    Algorithm::Step& round = rounds[static_cast<std::size_t>(move.time)];
    if (move.from == a.rank) {
      move.give ? round.give(move.to, move.chunk) : round.send(move.to, move.chunk);
    }
    if (move.to == a.rank) {
      move.copy ? round.copy_from(move.from, move.chunk) : round.add_from(move.from, move.chunk);
    }
  }
}

}  // namespace trireme::inline v0::comm
