// All optimizers: a new one is a file like lion.h, its #include and its name here.
#pragma once

#include <variant>

#include "trireme/kernel/optimizers/adafactor.h"
#include "trireme/kernel/optimizers/adagrad.h"
#include "trireme/kernel/optimizers/adamw.h"
#include "trireme/kernel/optimizers/ftrl.h"
#include "trireme/kernel/optimizers/lamb.h"
#include "trireme/kernel/optimizers/lion.h"
#include "trireme/kernel/optimizers/sgd.h"

namespace trireme::inline v0 {

using OptimizerOptions = std::variant<AdamW, Sgd, Lamb, Adafactor, Lion, Adagrad, Ftrl>;

}  // namespace trireme::inline v0
