// The keys of the optimizer, optimizer.*, and of its learning rate, in train.*.
#pragma once

#include "trireme/base/config/config.h"

namespace trireme::inline v0::train {

void add_optimizer_keys(config::Schema& schema);
void add_schedule_keys(config::Schema& schema);

}  // namespace trireme::inline v0::train
