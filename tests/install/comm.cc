// A program outside the tree, without LibTorch: one operation on a job of one rank.
#include <cstdio>
#include <vector>

#include "trireme/job.h"

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  std::vector<float> values = {1, 2};
  trireme::all_reduce(job.world(), values, trireme::Sum);
  const trireme::ConfigError error("found by pkg-config", {.advice = "Go on."});
  std::puts(error.what());
  return values[1] == 2 ? 0 : 1;
}
