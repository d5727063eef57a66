// Shared by ZB-H1 and ZB-H2: 1F1B with a split backward pass and delayed weight gradients.
#pragma once

#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {

/// Rank r runs `ahead(r)` forward passes before its first I, and W of micro-batch m - put_off(r)
/// after I of m; the remaining W fill the end.
Schedule handcrafted(const ScheduleShape& shape, int (*ahead)(int ranks, int rank),
                     int (*put_off)(int ranks, int rank));

}  // namespace trireme::inline v0::plan
