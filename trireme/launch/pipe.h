// A pipe whose ends close themselves. Only for .cc files of launch.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::launch {

struct Pipe {
  net::Descriptor out, in;  // to read from, to write to
};

inline Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) == 0) return {net::Descriptor(ends[0]), net::Descriptor(ends[1])};
  throw ResourceError(std::string("could not make a pipe: ") + std::strerror(errno),
                      {.operation = "launch", .advice = "Raise the limit on open files."});
}

}  // namespace trireme::inline v0::launch
