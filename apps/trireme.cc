// The program `trireme` that is called. The one with LibTorch is beside it (trireme_whole.cc).
#include "trireme/cli/light.h"

int main(int argc, char** argv) {
  if (const auto code = trireme::cli::run_light_command(argc, argv)) return *code;
  return trireme::cli::become_whole_program(argv);
}
