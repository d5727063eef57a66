// main() of every test program: GoogleTest's, unless the program was re-executed as a rank.
//
//     test.comm                                      every test of the module
//     test.comm --file=trireme/comm/group_test.cc   the tests that this file defines, as ctest does
//
// The program always fails if it has a test outside its *_test.cc files, which no ctest entry would
// run, or two tests of one name.
#include <gmock/gmock.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "trireme/testing/process_bodies.h"

namespace {

/// All tests of this program, and the file that defines each; empty if there is a fault.
std::map<std::string, std::string> files_of_tests() {
  std::map<std::string, std::string> files;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (!std::string_view(test.file()).ends_with("_test.cc")) {
        std::fprintf(stderr, "%s:%d: no ctest entry runs %s: move it into a *_test.cc\n",
                     test.file(), test.line(), name.c_str());
        return {};
      }
      if (!files.emplace(name, test.file()).second) {
        std::fprintf(stderr, "%s:%d: a second test %s\n", test.file(), test.line(), name.c_str());
        return {};
      }
    }
  }
  return files;
}

/// The --file= among the arguments, which GoogleTest leaves in them; or empty.
std::string_view chosen_file(int argc, char** argv) {
  constexpr std::string_view kOption = "--file=";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(kOption)) return argv[i] + kOption.size();
  return {};
}

/// Ends the process before LibTorch's static objects are destroyed, which takes 0.1 s, but after
/// exit handlers that were registered later, such as MPI's. Not under sanitizers, which look for
/// leaks.
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
  // Switches off malloc's bins for small freed blocks: each larger free goes through all of them,
  // which takes about 5 % of the processor time of tests with LibTorch.
  mallopt(M_MXFAST, 0);
  int exit_code = 0;
  if (trireme::testing::run_registered_process(argc, argv, exit_code)) return exit_code;
  ::testing::InitGoogleMock(&argc, argv);
  const std::map<std::string, std::string> files = files_of_tests();
  if (files.empty()) return 1;
  if (const std::string_view chosen = chosen_file(argc, argv); !chosen.empty()) {
    std::string filter;
    for (const auto& [name, file] : files)
      if (file == chosen || file.ends_with("/" + std::string(chosen))) filter += name + ":";
    if (filter.empty()) {
      std::fprintf(stderr, "no test of this program is in %s\n", std::string(chosen).c_str());
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
