// Everything public for programs without LibTorch: Job and the collectives. Link Trireme::comm.
#pragma once

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/negotiate/negotiate.h"
#include "trireme/comm/rounds/algorithm.h"
#include "trireme/job/job.h"
