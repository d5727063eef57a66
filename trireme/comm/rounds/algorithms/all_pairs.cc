// All pairs: in round 1, every rank sends slice r to rank r, which adds; in round 2, every rank
// sends its sum to all. Two rounds of n-1 messages, and 2(n-1)/n of the buffer per rank, the
// minimum of any algorithm, for every n. Messages are leaves or whole sums, never partial sums, so
// 16-bit data is sent as 16 bits. This is MSCCL's "allpairs" (Cowan et al. 2023).
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

void all_pairs(Algorithm& a) {
  auto scatter = a.round();
  for (int s = 1; s < a.size; ++s) {  // starts with the neighbour, to spread the load
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    scatter.send(to, a.chunk(to));
    scatter.add_from(from, a.chunk(a.rank));
  }
  auto gather = a.round();
  for (int s = 1; s < a.size; ++s) {
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    gather.send(to, a.chunk(a.rank));
    gather.copy_from(from, a.chunk(from));
  }
}

AlgorithmCost all_pairs_cost(const CostCase& c) {
  return {2, 2 * c.others() * c.bytes, c.others() * c.bytes};
}

}  // namespace

AlgorithmEntry all_pairs_entry() {
  return {.kind = OpKind::AllReduce,
          .name = "all_pairs",
          .about = "everyone's slice r to rank r, which adds, and back to everyone; 2 rounds",
          .generator = all_pairs,
          .cost = all_pairs_cost,
          .formulas = {{"", "2", "2(n−1)/n", "(n−1)/n"}}};
}

}  // namespace trireme::inline v0::comm
