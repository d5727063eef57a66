// Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
// Clusters", arXiv 2104.04473): a rank holds v chunks of the chain, so a micro-batch visits it v
// times and filling the pipeline takes 1/v of the time.
//
// Forward passes go in groups of p micro-batches: a group through the rank's first chunk, then the
// second, ...; backward likewise from the last chunk on. Rank r is 2(p-1-r) + (v-1)p passes ahead.
// Bubble (p-1)/(vM+p-1) if p divides M. Otherwise the batch is padded to a multiple of p with
// micro-batches that are left out: a smaller last group would deadlock, because rank 0 would wait
// for a chunk that rank p-1 computes after a gradient of rank 0. Hops are crossed v times as often.
#include <algorithm>
#include <utility>

#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {
namespace {

// (chunk, micro-batch) in the order in which a rank computes them.
std::vector<std::pair<int, int>> passes_of(const ScheduleShape& shape, bool backward) {
  std::vector<std::pair<int, int>> passes;
  const int chunks = shape.chunks();
  for (int first = 0; first < shape.microbatches; first += shape.ranks)
    for (int i = 0; i < chunks; ++i)
      for (int m = first; m < first + shape.ranks; ++m)
        passes.emplace_back(backward ? chunks - 1 - i : i, m);
  return passes;
}

Schedule interleaved(const ScheduleShape& shape) {
  if (shape.chunks() == 1) return one_f_one_b(shape);
  const auto forward = passes_of(shape, false), backward = passes_of(shape, true);
  return looped_by(shape, [&](Order& order, int rank) {
    const auto go = [&](std::size_t k) {
      if (k < forward.size())
        order.forward(forward[k].first * shape.ranks + rank, forward[k].second);
    };
    const std::size_t ahead =
        static_cast<std::size_t>(2 * (shape.ranks - 1 - rank) + (shape.chunks() - 1) * shape.ranks);
    for (std::size_t k = 0; k < std::min(ahead, forward.size()); ++k) go(k);
    for (std::size_t k = 0; k < backward.size(); ++k) {
      go(k + ahead);
      order.backward(backward[k].first * shape.ranks + rank, backward[k].second);
    }
  });
}

}  // namespace

ScheduleEntry interleaved_entry() {
  return {.name = "interleaved-1f1b",
          .about = "1F1B over several chunks a rank: a shorter bubble",
          .source = "arXiv 2104.04473",
          .bubble = "(p−1)/(vM+p−1), p divides M",
          .live = "(2(p−1−r)+(v−1)p+1)/v",
          .chunks = Chunks::Any,
          .make = interleaved,
          .most_passes = [](const ScheduleShape& shape, int rank) {
            const int behind = shape.ranks - 1 - rank, v = shape.chunks();
            return v == 1 ? behind + 1 : 2 * behind + (v - 1) * shape.ranks + 1;
          }};
}

}  // namespace trireme::inline v0::plan
