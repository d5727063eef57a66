// Mixing: which ranks average with each other when ranks gossip instead of reducing over all of
// them (D-PSGD: Lian et al. 2017, arXiv:1705.09056). A value that is built, checked and printed
// before anything is sent.
//
// Round k has a mixing matrix W_k: after it, rank i holds the sum over j of W_k[i][j] x (what rank
// j held). The rounds repeat. Rows and columns of each matrix add up to 1 (doubly stochastic), so
// the ranks' mean never changes; over a period every rank reaches every other, so all approach it.
//
//   ring         i averages with i-1 and i+1                             1/3 each
//   exponential  i receives from i - 2^j for every 2^j < N               1/(1 + ceil(log2 N)) each
//   one_peer     in round k, i receives from i - 2^(k mod ceil(log2 N))  1/2 each
//   random       in each round a matching of all ranks, by a seed        1/2 each; odd: one rests
//
// Exponential graphs: Ying et al. 2021, arXiv:2110.13363. On a power of two of ranks, one_peer
// reaches the exact mean after each period. Pure functions, thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::plan {

/// One non-zero entry in a rank's row of W_k.
struct MixingTerm {
  int from = 0;
  double weight = 0;
  friend bool operator==(const MixingTerm&, const MixingTerm&) = default;
};

struct MixingRound {
  std::vector<std::vector<MixingTerm>> rows;  // [rank], by ascending `from`; includes itself
  /// The ranks that receive from `rank`, ascending, without itself.
  std::vector<int> receivers(int rank) const;
};

struct Mixing {
  std::string graph;
  int size = 1;
  std::vector<MixingRound> rounds;  // one period
  const MixingRound& round(std::int64_t number) const {
    return rounds[static_cast<std::size_t>(number) % rounds.size()];
  }
};

struct MixingFacts {
  bool doubly_stochastic = false;  // to 1e-12
  bool connected = false;          // over a period every rank reaches every other
  /// The spectral norm ||W_P ... W_1 - J/N||_2: the factor by which a period shrinks the distance
  /// from the mean, at worst. 0: all ranks are at the mean.
  double left = 1;
  double gap = 0;         // 1 - left^(1/P): per round
  int most_messages = 0;  // per rank and round
};

/// The names of graphs, in the order above.
const std::vector<std::string>& mixing_graphs();
/// `seed` is for "random". ConfigError for an unknown name, or for a size that is not 1 to 100,000.
Mixing make_mixing(const std::string& graph, int size, std::uint64_t seed);
MixingFacts facts_of(const Mixing& mixing);
/// ConfigError with the reason unless it is doubly stochastic and connected.
void check(const Mixing& mixing);
/// "ring of 8 ranks: at most 2 messages a rank, doubly stochastic, spectral gap 0.195 a round".
std::string describe(const Mixing& mixing);
/// describe() if the facts of `mixing` are known.
std::string describe(const Mixing& mixing, const MixingFacts& facts);

}  // namespace trireme::inline v0::plan
