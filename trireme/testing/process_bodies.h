// Bodies that a test program runs in separate processes. The program re-executes itself: LibTorch
// and gRPC start threads, so a bare fork is unsafe.
//
//     TRIREME_PROCESS(sums) {                      // int (int argc, char** argv)
//       Job job(argc, argv);
//       ...
//       return 0;
//     }
//     TEST(Chaos, Sums) { EXPECT_EQ(testing::run_processes(2, "sums").exit_code, 0); }
#pragma once

#include <string>

namespace trireme::inline v0::testing {

using ProcessBody = int (*)(int argc, char** argv);

/// The environment variable that makes a test program run a body instead of its tests.
inline constexpr const char* kProcessVariable = "TRIREME_TEST_PROCESS";

bool register_process(const char* name, ProcessBody body);
/// In a re-executed program: runs its body and returns true. Exceptions propagate.
bool run_registered_process(int argc, char** argv, int& exit_code);

}  // namespace trireme::inline v0::testing

#define TRIREME_PROCESS(name)                                              \
  static int trireme_process_##name(int argc, char** argv);                \
  [[maybe_unused]] static const bool trireme_registered_##name =           \
      ::trireme::testing::register_process(#name, trireme_process_##name); \
  static int trireme_process_##name([[maybe_unused]] int argc, [[maybe_unused]] char** argv)
