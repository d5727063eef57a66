// The program trireme with an all-reduce of its own.
#include "trireme/cli/cli.h"
#include "trireme/comm/registry.h"

namespace {

void around(trireme::comm::Algorithm& a) {
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank - s)).add_from(a.prev(), a.chunk(a.rank - s - 1));
  }
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank + 1 - s)).copy_from(a.prev(), a.chunk(a.rank - s));
  }
}

const auto registered = trireme::register_all_reduce("mine", around);

}  // namespace

int main(int argc, char** argv) { return trireme::cli::run(argc, argv); }
