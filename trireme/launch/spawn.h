// spawn: one child process by execve (never a shell), tied to the life of this one.
//
// The child gets its own process group (a Ctrl-C reaches the launcher alone, which passes it on
// once), is killed by the kernel when the spawning thread dies, and inherits the named descriptors
// only. Call it from a thread that lives as long as the child should.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace launch {

struct SpawnOptions {
  std::vector<std::string> command;         // program and arguments; looked up in PATH
  std::vector<std::string> environment;     // "NAME=value", all that it has
  int input = -1, output = -1, error = -1;  // become 0, 1, 2; -1: this process's own
  std::vector<int> inherit;                 // these stay open in the child under their numbers
  std::vector<int> cores;                   // empty: not pinned
};
struct Process {
  pid_t pid = -1;
  int descriptor = -1;  // a pidfd: readable when the process has ended
};

/// This process's own, for SpawnOptions::environment.
std::vector<std::string> own_environment();
/// ConfigError where the program cannot be found or run, ResourceError where the system refuses.
Process spawn(const SpawnOptions& options);
/// The path that a shell would run; throws ConfigError.
std::string find_program(const std::string& name);

}  // namespace launch
}  // namespace v0
}  // namespace trireme
