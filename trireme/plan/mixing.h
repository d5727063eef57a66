// Mixing: who averages with whom when ranks gossip instead of reducing over all of them
// (D-PSGD: Lian et al. 2017, arXiv:1705.09056). A value that is built, checked and printed before a
// byte is sent.
//
// Round k has a mixing matrix W_k: after it, rank i holds the sum over j of W_k[i][j] x (what rank
// j held). The rounds repeat. Rows and columns of each matrix add up to 1 (doubly stochastic), so
// the ranks' mean never changes; over a period everyone reaches everyone, so all come to the mean.
//
//     ring           i hears i-1 and i+1                                  1/3 each
//     exponential    i hears i - 2^j for every 2^j < N                    1/(1 + ceil(log2 N)) each
//     one_peer       in round k, i hears i - 2^(k mod ceil(log2 N))       1/2 each
//     random         in each round a matching of all ranks, by a seed     1/2 each; odd: one rests
//
// Exponential graphs: Ying et al. 2021, arXiv:2110.13363; on a power of two of ranks one_peer
// is at the exact mean after each period. Pure functions; no state, thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace plan {

/// A rank's row of W_k without zeros.
struct MixingTerm {
  int from = 0;
  double weight = 0;
  friend bool operator==(const MixingTerm&, const MixingTerm&) = default;
};

struct MixingRound {
  std::vector<std::vector<MixingTerm>> rows;  // [rank], by ascending `from`; its own is among them
  /// Who hears `rank`, ascending, without itself.
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
  /// ||W_P ... W_1 - J/N||_2: what is left of the ranks' distance from their mean after a period,
  /// at worst. 0: all are at the mean.
  double left = 1;
  double gap = 0;         // 1 - left^(1/P): of a round
  int most_messages = 0;  // that a rank sends in a round
};

/// The names of graphs, in the order above.
const std::vector<std::string>& mixing_graphs();
/// `seed`: of random. ConfigError for another name, and for a size below 1.
Mixing make_mixing(const std::string& graph, int size, std::uint64_t seed);
MixingFacts facts_of(const Mixing& mixing);
/// ConfigError that says what is wrong unless it is doubly stochastic and connected.
void check(const Mixing& mixing);
/// "ring of 8 ranks: 2 messages a rank, doubly stochastic, spectral gap 0.195 a round".
std::string describe(const Mixing& mixing);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
