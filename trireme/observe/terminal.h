// Whether a stream is the user's own terminal, where a line can be redrawn. Only reads the state of
// the process; thread safe while no thread changes the environment.
#pragma once

namespace trireme::inline v0::observe {

/// True if the descriptor is this process's controlling terminal and can move its cursor. False for
/// a pipe, for TERM=dumb, and for a terminal that a launcher made to read this process (Open MPI
/// makes one for every rank).
bool is_own_terminal(int descriptor);
/// False if NO_COLOR is set (no-color.org). For a stream with is_own_terminal().
bool wants_color();

}  // namespace trireme::inline v0::observe
