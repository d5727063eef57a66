// spawn: starts one child process by execve (without a shell).
//
// The child gets its own process group, so a Ctrl-C reaches only the launcher, which passes it on
// once. The kernel kills the child when the spawning thread dies. The child inherits only the named
// descriptors. Call spawn() on a thread that lives as long as the child should.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "trireme/base/descriptor.h"

namespace trireme::inline v0::launch {

struct SpawnOptions {
  std::vector<std::string> command;         // program and arguments; looked up in PATH
  std::vector<std::string> environment;     // "NAME=value"; the child has no other variables
  int input = -1, output = -1, error = -1;  // become 0, 1, 2; -1: this process's
  std::vector<int> inherit;                 // kept open in the child under the same numbers
  std::vector<int> cores;                   // empty: not pinned
};
struct Process {
  pid_t pid = -1;
  int descriptor = -1;  // a pidfd: readable when the process has ended
};

/// GLIBC_TUNABLES of programs that train, unless the environment has it. Puts weights and
/// activations on huge pages: products access rows that are pages apart, and a GPT step is 4-7 %
/// faster. The C library reads it only at a process's start.
inline constexpr const char* kAllocatorTunables = "glibc.malloc.hugetlb=1";

/// This process's environment, for SpawnOptions::environment.
std::vector<std::string> own_environment();
/// Adds "NAME=value", unless there is an entry of that name.
void add_variable(std::vector<std::string>& environment, const std::string& entry);

/// A child inherits an end only if SpawnOptions names it. make_pipe() throws ResourceError.
struct Pipe {
  Descriptor out, in;  // to read from, to write to
};
Pipe make_pipe();

/// Throws ConfigError if the program cannot be found or run, ResourceError if the system refuses.
Process spawn(const SpawnOptions& options);
/// The path that a shell would run. Throws ConfigError.
std::string find_program(const std::string& name);

}  // namespace trireme::inline v0::launch
