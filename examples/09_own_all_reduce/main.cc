// Registers your own all-reduce, and a wrong one; the program's commands draw and verify them.
#include "trireme/job.h"

namespace {

// Called once for every rank; it records what the rank sends and receives, round by round. Chunk c
// starts at rank c; one rank after another adds to it, and its sum goes around once more.
void mine(trireme::Algorithm& a) {
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank - s)).add_from(a.prev(), a.chunk(a.rank - s - 1));
  }
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank + 1 - s)).copy_from(a.prev(), a.chunk(a.rank - s));
  }
}

// The same, but a rank sends in the round after it has received: every rank waits for another.
void wrong(trireme::Algorithm& a) {
  for (int s = 0; s < a.size - 1; ++s) {
    a.round().add_from(a.prev(), a.chunk(a.rank - s - 1));
    a.send(a.next(), a.chunk(a.rank - s));
  }
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank + 1 - s)).copy_from(a.prev(), a.chunk(a.rank - s));
  }
}

const auto registered = trireme::register_all_reduce("mine", mine, "once around, twice");
const auto registered_wrong = trireme::register_all_reduce("wrong", wrong);

}  // namespace

int main(int argc, char** argv) { return trireme::commands(argc, argv); }
