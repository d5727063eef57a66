// Writes scalars into the folder argv[1], in two runs, for tensorboard_compat.py to read.
#include <cstdio>

#include "trireme/observe/tensorboard.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 2;
  {
    trireme::observe::TensorBoardWriter writer;
    writer.open(argv[1]);
    for (long step = 1; step <= 200; ++step) {
      writer.scalar("loss/train", step, 5.0 / static_cast<double>(step));
      if (step % 50 == 0) writer.scalar("loss/validation", step, 1e-3 * static_cast<double>(step));
    }
  }
  // A run that was resumed after step 150.
  trireme::observe::TensorBoardWriter writer;
  writer.open(argv[1], 151);
  for (long step = 151; step <= 160; ++step)
    writer.scalar("loss/train", step, -static_cast<double>(step));
}
