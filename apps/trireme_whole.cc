// The program `trireme` with all commands: its code is in trireme/cli/torch.
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "trireme/cli/torch/cli.h"

namespace {

// LibTorch's static objects take a third of a short command's time to go. This ends the process
// before they do, but after what was registered later, such as the end of MPI.
void spare_the_libraries_ends() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  spare_the_libraries_ends();
  return trireme::cli::run(argc, argv);
}
