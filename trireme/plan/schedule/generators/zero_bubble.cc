#include "trireme/plan/schedule/generators/zero_bubble.h"

#include <algorithm>

namespace trireme::inline v0::plan {

Schedule handcrafted(const ScheduleShape& shape, int (*ahead)(int, int), int (*put_off)(int, int)) {
  Schedule schedule = looped(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order order(schedule.order[static_cast<std::size_t>(rank)], shape.microbatches);
    const int warm_up = ahead(shape.ranks, rank), late = put_off(shape.ranks, rank);
    for (int m = 0; m < std::min(warm_up, shape.microbatches); ++m) order.forward(rank, m);
    for (int m = 0; m < shape.microbatches; ++m) {
      order.forward(rank, m + warm_up).input(rank, m);
      if (m >= late) order.weight(rank, m - late);
    }
    for (int m = std::max(0, shape.microbatches - late); m < shape.microbatches; ++m) {
      order.weight(rank, m);
    }
  }
  return schedule;
}

}  // namespace trireme::inline v0::plan
