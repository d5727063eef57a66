// Program: a collective algorithm as a value. It lists, for each rank and round, which chunks the
// rank sends and receives, and with whom (algorithm.h). It can be printed, verified, counted and
// executed. The executor (ProgramRun) sends all terms that the rank holds of a chunk, and adds only
// siblings of the tree sum.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "trireme/comm/rounds/algorithm.h"

namespace trireme::inline v0::comm {

struct Program {
  int num_chunks = 1;
  std::vector<std::vector<Round>> rounds_of_rank;
};

/// Algorithm::pieces for a buffer of `bytes`. A piece is small enough to be added while it is in
/// the caches, and large enough that the latency of a round is negligible.
int pieces_for(std::size_t bytes, int size) noexcept;

/// Runs `generator` for every rank. ConfigError if there is no chunk, if the ranks disagree on the
/// number of chunks, or if a peer or a chunk is out of range. `hosts`, `pieces`: as in Algorithm.
Program record(std::string_view name, const Generator& generator, int size, int root = 0,
               const std::vector<int>& hosts = {}, int pieces = 1);

}  // namespace trireme::inline v0::comm
