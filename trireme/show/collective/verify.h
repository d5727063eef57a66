// Verifies an algorithm, built-in or the user's own, on a range of rank counts. First its program
// is resolved: every contribution once, no deadlock, no message left over. Then it runs over the
// simulated network, on counts that do not divide evenly, and is compared with a directly computed
// sum; seeds vary the order of ranks and the latency. Deterministic for its seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/rounds/route.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::show {

struct VerifyOptions {
  comm::OpKind kind = comm::OpKind::AllReduce;
  std::string algorithm;
  int least = 2, most = 16;  // ranks
  int seeds = 100;           // spread over the rank counts
  int hosts = 1;             // hosts that share the ranks (at most one per rank)
};

/// The result for one rank count.
struct VerifiedCount {
  int ranks = 2;
  plan::CostShape shape;
  double most_sent = 0;  // by one rank, in buffers; measured in a run
  int runs = 0;          // simulated
};

struct Flaw {
  int ranks = 2;
  std::string what;     // one sentence
  std::string drawing;  // lines: who waits for whom, or what each rank held; may be empty
  std::string advice;   // one sentence
};

struct Verdict {
  std::vector<VerifiedCount> counts;
  std::vector<Flaw> flaws;  // one per rank count that fails, ascending
  int runs = 0;
};

/// The placements of `ranks` on `hosts` (Algorithm::host_of_rank) to verify: neighbours together,
/// round-robin, and as many ranks as possible on the first host.
std::vector<std::vector<int>> placements(int ranks, int hosts);

/// ConfigError if the algorithm is not registered or the range is invalid.
Verdict verify(const VerifyOptions& options);

/// "rank 0  round 2: waits for rank 2 to send chunk 1" ..., then the cycle or chain of waits.
std::string drawing_of(const std::vector<comm::RouteError::Wait>& waits, int ranks);

}  // namespace trireme::inline v0::show
