// The program `trireme` of a build without LibTorch.
#include "trireme/cli/command_list.h"

int main(int argc, char** argv) { return trireme::cli::run_without_libtorch(argc, argv); }
