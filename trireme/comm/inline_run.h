// Operations whose data fits into the header: one exchange of headers does all. Pure functions on a
// Call; all algorithms share them, since the tree sum has the same bits everywhere.
#pragma once

#include "trireme/comm/engine.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// True on all ranks or on none.
bool fits_header(const Operation& operation, int rank, int size);
/// Copies this rank's data into call.own.
void fill_header(Call& call, int rank);
/// With all ranks' headers in call.headers, computes `out`.
void complete_inline(const Call& call, int rank, int size);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
