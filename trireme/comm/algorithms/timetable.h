// Timetable: who sends what to whom when, for all ranks at once. What an algorithm is built from
// that is easier to see as a whole than from one rank: trees, groups of ranks, pipelines. Values.
//
//     Timetable table;
//     table.add(0, 1, 0, a.chunk(0));   // time 0: rank 1 sends chunk 0, rank 0 adds it
//     table.copy(1, 0, 1, a.chunk(0));
//     table.record(a);                  // the rounds of a.rank
#pragma once

#include <vector>

#include "trireme/comm/program.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class Timetable {
 public:
  void add(int time, int from, int to, Chunk chunk) { moves_.push_back({time, from, to, chunk}); }
  /// `from` holds the chunk no longer.
  void give(int time, int from, int to, Chunk chunk);
  void copy(int time, int from, int to, Chunk chunk);
  /// The time after the last entry.
  int end() const noexcept;
  /// Opens one round per time, empty ones included, so that rounds of equal number happen together.
  void record(Algorithm& a) const;

 private:
  struct Move {
    int time, from, to;
    Chunk chunk;
    bool copy = false, give = false;
  };
  std::vector<Move> moves_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
