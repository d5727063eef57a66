#define TRIREME_REDUCE_TABLE kReduceSse2
#include "trireme/kernel/reduce_body.h"
