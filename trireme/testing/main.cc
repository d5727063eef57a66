// main() of every test program: GoogleTest's, unless the program was re-executed as a rank.
#include <gmock/gmock.h>

#include "trireme/testing/process_bodies.h"

int main(int argc, char** argv) {
  int exit_code = 0;
  if (trireme::testing::run_registered_process(argc, argv, exit_code)) return exit_code;
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
