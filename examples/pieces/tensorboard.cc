// TensorBoardWriter: scalars for TensorBoard, without Python: tensorboard --logdir FOLDER
#include <cmath>
#include <cstdio>

#include "trireme/trireme.h"

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "piece_tensorboard FOLDER\n"), 2;
  trireme::TensorBoardWriter board;
  board.open(argv[1]);
  for (int step = 1; step <= 20; ++step) {
    board.scalar("loss/train", step, std::exp(-0.1 * step));
    if (step % 5 == 0) board.scalar("loss/validation", step, 1.1 * std::exp(-0.1 * step));
  }
}
