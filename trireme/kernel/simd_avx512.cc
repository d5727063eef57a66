#if defined(__x86_64__)
#define TRIREME_LEVEL avx512
#include "trireme/kernel/simd_body.inc"
#endif
