#define TRIREME_REDUCE_TABLE kReduceAvx2
#include "trireme/kernel/reduce_body.h"
