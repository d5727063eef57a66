// The program `trireme` of a build without LibTorch.
#include "trireme/command/command.h"

int main(int argc, char** argv) { return trireme::command::run_without_libtorch(argc, argv); }
