#include "trireme/observe/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace trireme::inline v0::observe {

bool is_own_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb") return false;
  // Only the processes that a terminal controls can ask for its foreground group.
  return isatty(descriptor) == 1 && tcgetpgrp(descriptor) >= 0;
}

bool wants_color() {
  const char* no = std::getenv("NO_COLOR");
  return no == nullptr || *no == '\0';
}

}  // namespace trireme::inline v0::observe
