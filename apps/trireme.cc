// The program `trireme`: its code is in trireme/cli.
#include "trireme/cli/cli.h"

int main(int argc, char** argv) { return trireme::cli::run(argc, argv); }
