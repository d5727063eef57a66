// Verification of an algorithm, shipped or one's own: on every rank count of a range its program is
// resolved (every part once, nobody waits for ever, no message left over), and then run over the
// simulated network, with seeds that change who goes first and how long messages take, on counts
// that do not divide, against a sum made by hand. Deterministic for its seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/op_kind.h"
#include "trireme/comm/route.h"
#include "trireme/plan/tuning.h"

namespace trireme {
inline namespace v0 {
namespace show {

struct VerifyOptions {
  comm::OpKind kind = comm::OpKind::AllReduce;
  std::string algorithm;
  int least = 2, most = 16;  // ranks
  int seeds = 100;           // spread over the rank counts
  int hosts = 1;             // on which the ranks lie (fewer where there are fewer ranks)
};

/// What was seen on one rank count.
struct VerifiedCount {
  int ranks = 2;
  plan::CostShape shape;
  double most_sent = 0;  // by one rank, in buffers; counted on the messages of a run
  int runs = 0;          // simulated
};

struct Flaw {
  int ranks = 2;
  std::string what;     // one sentence
  std::string drawing;  // lines; who waits for whom, or what everybody held; may be empty
  std::string advice;   // one sentence
};

struct Verdict {
  std::vector<VerifiedCount> counts;
  std::vector<Flaw> flaws;  // one per rank count that fails, ascending
  int runs = 0;
};

/// Ways to place `ranks` on `hosts`, as Algorithm::host_of_rank, which all are verified: neighbours
/// together, in turns, and all that there may be on the first host.
std::vector<std::vector<int>> placements(int ranks, int hosts);

/// ConfigError where the algorithm is not registered or the range is none.
Verdict verify(const VerifyOptions& options);

/// "rank 0  round 2: needs chunk 1 from rank 2" ..., and the circle or the chain that it ends in.
std::string drawing_of(const std::vector<comm::RouteError::Wait>& waits, int ranks);

}  // namespace show
}  // namespace v0
}  // namespace trireme
