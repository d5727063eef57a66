// What ZB-H1 and ZB-H2 share: 1F1B with the backward pass in two, the weights' half put off.
#pragma once

#include "trireme/plan/schedules/schedules.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// Rank r goes forward `ahead(r)` times before its first I and does W of micro-batch m - put_off(r)
/// after I of m; the rest of W fills the end.
Schedule handcrafted(const ScheduleShape& shape, int (*ahead)(int ranks, int rank),
                     int (*put_off)(int ranks, int rank));

}  // namespace plan
}  // namespace v0
}  // namespace trireme
