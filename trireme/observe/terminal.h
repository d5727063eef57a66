// Who watches a stream: a line that is drawn anew suits the terminal that the user sits at, and
// nothing else. Pure reads of the process's state; thread safe while nobody changes the
// environment.
#pragma once

namespace trireme {
inline namespace v0 {
namespace observe {

/// The descriptor is this process's own terminal, and one that moves its cursor. False for a pipe,
/// for TERM=dumb, and for a terminal that a launcher made to read this process (Open MPI does, for
/// every rank): that is not the one that controls it.
bool is_own_terminal(int descriptor);
/// False where NO_COLOR is set to anything (no-color.org). For a stream that is_own_terminal().
bool wants_color();

}  // namespace observe
}  // namespace v0
}  // namespace trireme
