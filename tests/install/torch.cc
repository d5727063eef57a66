// A program outside the tree, with LibTorch and the Trireme modules that need it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/version.h>

#include <cstdio>

#include "trireme/base/error.h"

// As trireme/trireme.h compares, which takes long to compile.
static_assert(TORCH_VERSION_MAJOR == TRIREME_LIBTORCH_MAJOR &&
              TORCH_VERSION_MINOR == TRIREME_LIBTORCH_MINOR);

int main() {
  const trireme::ConfigError error("found by pkg-config", {.advice = "Go on."});
  std::printf("%s %ld\n", error.what(), static_cast<long>(at::ones({3}).numel()));
}
