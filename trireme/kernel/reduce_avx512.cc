#define TRIREME_REDUCE_TABLE kReduceAvx512
#include "trireme/kernel/reduce_body.h"
