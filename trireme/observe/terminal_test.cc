#include "trireme/observe/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace trireme {
namespace {

// A pseudo-terminal and its reading end.
class Terminal {
 public:
  Terminal() : reader_(posix_openpt(O_RDWR | O_NOCTTY)) {
    grantpt(reader_);
    unlockpt(reader_);
    end_ = open(ptsname(reader_), O_RDWR | O_NOCTTY);
  }
  ~Terminal() {
    close(end_);
    close(reader_);
  }
  int end() const { return end_; }

 private:
  int reader_, end_ = -1;
};

// Asks in a process with its own session; `controls`: the terminal controls that session.
bool asked(const Terminal& terminal, const char* kind, bool controls) {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (controls && ioctl(terminal.end(), TIOCSCTTY, 0) != 0) _exit(2);
    kind != nullptr ? setenv("TERM", kind, 1) : unsetenv("TERM");
    _exit(observe::is_own_terminal(terminal.end()) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << status;
  return WEXITSTATUS(status) == 1;
}

TEST(Terminal, IsOwnWhereItControlsTheProcess) {
  const Terminal terminal;
  ASSERT_GE(terminal.end(), 0);
  EXPECT_TRUE(asked(terminal, "xterm", true));
  EXPECT_FALSE(asked(terminal, "dumb", true));
  EXPECT_FALSE(asked(terminal, nullptr, true));
}

// Open MPI makes such a terminal for each rank and reads it.
TEST(Terminal, ThatALauncherReadsIsNotOwn) {
  const Terminal terminal;
  ASSERT_GE(terminal.end(), 0);
  EXPECT_EQ(isatty(terminal.end()), 1);
  EXPECT_FALSE(asked(terminal, "xterm", false));
}

TEST(Terminal, NoPipeIsOne) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(observe::is_own_terminal(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST(Terminal, ColorCanBeRefused) {
  unsetenv("NO_COLOR");
  EXPECT_TRUE(observe::wants_color());
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(observe::wants_color());
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(observe::wants_color());
  unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace trireme
