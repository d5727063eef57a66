// A program outside the tree, with LibTorch and the Trireme modules that need it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <cstdio>

#include "trireme/base/error.h"

int main() {
  const trireme::ConfigError error("found by pkg-config", {.advice = "Go on."});
  std::printf("%s %ld\n", error.what(), static_cast<long>(at::ones({3}).numel()));
}
