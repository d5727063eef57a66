// A program outside the tree, without LibTorch: one operation on a job of one rank.
#include <cstdio>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/kernel/tree_sum.h"

int main() {
  const trireme::ConfigError error("found by pkg-config", {.advice = "Go on."});
  std::puts(error.what());
}
