// The instruction sets that this processor can run: tests compare the kernels at each.
#pragma once

#include <vector>

#include "trireme/kernel/isa.h"

namespace trireme::inline v0::testing {

inline std::vector<kernel::Isa> levels() {
  std::vector<kernel::Isa> all = {kernel::Isa::Generic};
  if (kernel::isa() >= kernel::Isa::Avx2) all.push_back(kernel::Isa::Avx2);
  if (kernel::isa() >= kernel::Isa::Avx512) all.push_back(kernel::Isa::Avx512);
  return all;
}

}  // namespace trireme::inline v0::testing
