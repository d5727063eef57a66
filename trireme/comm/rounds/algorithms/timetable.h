// Timetable: the transfers of an algorithm, for all ranks at once. Used for algorithms that are
// easier to write as a whole than for one rank: trees, groups of ranks, pipelines. Values.
//
//     Timetable table;
//     table.add(0, 1, 0, a.chunk(0));   // time 0: rank 1 sends chunk 0, rank 0 adds it
//     table.copy(1, 0, 1, a.chunk(0));
//     table.record(a);                  // the rounds of a.rank
#pragma once

#include <vector>

#include "trireme/comm/rounds/program.h"

namespace trireme::inline v0::comm {

class Timetable {
 public:
  void add(int time, int from, int to, Chunk chunk) { moves_.push_back({time, from, to, chunk}); }
  /// As add(), but `from` drops the chunk.
  void give(int time, int from, int to, Chunk chunk) {
    moves_.push_back({.time = time, .from = from, .to = to, .chunk = chunk, .give = true});
  }
  void copy(int time, int from, int to, Chunk chunk) {
    moves_.push_back({.time = time, .from = from, .to = to, .chunk = chunk, .copy = true});
  }
  /// Records a.rank's rounds: one for each time, even if empty, so that round numbers are times.
  void record(Algorithm& a) const;

 private:
  struct Move {
    int time, from, to;
    Chunk chunk;
    bool copy = false, give = false;
  };
  std::vector<Move> moves_;
};

}  // namespace trireme::inline v0::comm
