// in_context(): runs something in a waiter's progress context, and waits until it has ended.
#pragma once

#include <functional>

#include "trireme/base/waiter.h"

namespace trireme::inline v0::launch {

/// Call it outside the context. Throws what `task` throws.
void in_context(Waiter& waiter, const std::function<void()>& task);

}  // namespace trireme::inline v0::launch
