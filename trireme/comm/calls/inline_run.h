// Operations whose data fits into the header: the exchange of headers completes them. The algorithm
// does not matter, since all of them give the bits of the tree sum. Pure functions.
#pragma once

#include "trireme/comm/calls/operation.h"
#include "trireme/comm/fold_plan.h"

namespace trireme::inline v0::comm {

/// True if the data fits; the same on all ranks.
bool fits_header(const Operation& operation, const FoldPlan& plan);
/// Copies this rank's data to `payload`.
void fill_payload(const Operation& operation, int rank, std::byte* payload);
/// Computes `out` from all ranks' payloads.
void complete_inline(const Operation& operation, const FoldPlan& plan, int rank,
                     std::span<const std::byte* const> payloads);

}  // namespace trireme::inline v0::comm
