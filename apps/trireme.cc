// The program `trireme`: its code is in trireme/cli/torch.
#include "trireme/cli/torch/cli.h"

int main(int argc, char** argv) { return trireme::cli::run(argc, argv); }
