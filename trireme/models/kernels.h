// Kernel: one of the calls that a training step is made of, with its sizes. A plan adds up their
// times (train/plan/kernel_speeds.h); which names there are is in train/plan/kernel_runs.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::models {

/// Forward and backward. `name` is the function; `sizes` are its loops, such as rows, in, out.
struct Kernel {
  std::string name;
  std::vector<std::int64_t> sizes;
  double calls = 1;
};

}  // namespace trireme::inline v0::models
