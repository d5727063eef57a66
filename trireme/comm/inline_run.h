// Operations whose data fits into the header: one exchange of headers does all. Pure functions; all
// algorithms share them, since the tree sum has the same bits everywhere.
#pragma once

#include "trireme/comm/engine.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// True on all ranks or on none.
bool fits_header(const Operation& operation, const FoldPlan& plan);
/// Copies this rank's data to `payload`.
void fill_payload(const Operation& operation, int rank, std::byte* payload);
/// Computes `out` from all ranks' payloads.
void complete_inline(const Operation& operation, const FoldPlan& plan, int rank,
                     std::span<const std::byte* const> payloads);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
