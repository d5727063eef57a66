#include "trireme/kernel/reduce_body.h"

namespace trireme::inline v0::kernel {

const ReduceTable kReduceSse2 = TRIREME_REDUCE_TABLE;

}  // namespace trireme::inline v0::kernel
