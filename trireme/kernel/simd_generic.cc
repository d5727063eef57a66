#define TRIREME_LEVEL generic
#include "trireme/kernel/simd_body.inc"
