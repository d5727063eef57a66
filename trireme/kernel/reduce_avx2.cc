#include "trireme/kernel/reduce_body.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

const ReduceTable kReduceAvx2 = TRIREME_REDUCE_TABLE;

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
