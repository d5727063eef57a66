// Runs bash scripts around this test program, for what only a shell does to a launcher (limits,
// closed streams, pipes). A script finds this program in $SELF. `launch N PROGRAM ARGUMENTS...`
// starts ranks as `trireme launch -n N` does, `become N ...` does so in the shell's own process,
// and `body NAME` runs a TRIREME_PROCESS. shell.cc has the body of `launch` and `become`.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace trireme::test {

struct ShellRun {
  int code = -1;    // 137: it did not end
  std::string out;  // stdout and stderr
  std::string describe() const { return "exit code " + std::to_string(code) + "\n" + out; }
  int count(const std::string& text) const {
    int number = 0;
    for (auto at = out.find(text); at != out.npos; at = out.find(text, at + 1)) ++number;
    return number;
  }
};

/// `as`: a command to run the shell with, such as setpriv.
inline ShellRun run_shell(const std::string& script, const std::string& as = "") {
  const std::string whole =
      "launch() { TRIREME_TEST_PROCESS=launches \"$SELF\" \"$@\"; }\n"
      "become() { export TRIREME_TEST_PROCESS=launches; exec \"$SELF\" \"$@\"; }\n"
      "body() { TRIREME_TEST_PROCESS=$1 \"$SELF\"; }\n" +
      script;
  setenv("SELF", std::filesystem::read_symlink("/proc/self/exe").c_str(), 1);
  setenv("SCRIPT", whole.c_str(), 1);
  ShellRun run;
  const std::string command = "exec timeout -s KILL 90 " + as + " bash -c \"$SCRIPT\" 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char bytes[4096];
  while (const std::size_t got = std::fread(bytes, 1, sizeof bytes, pipe)) {
    run.out.append(bytes, got);
  }
  const int status = pclose(pipe);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

}  // namespace trireme::test
