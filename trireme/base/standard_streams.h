// The standard streams of a process, and the signals that the system sends about them.
//
// A program may be started with its standard streams closed (`>&-`), or lose their reader while it
// runs (`| head -1`). Nothing here throws or allocates.
#pragma once

namespace trireme {
inline namespace v0 {

/// Opens /dev/null on descriptors 0, 1 and 2 where they are closed: otherwise the next socket or
/// memory file would become standard error, and be written to. Call it first in a process. Files
/// beyond the size limit (`ulimit -f`) fail with EFBIG from here on, instead of by SIGXFSZ.
void open_standard_streams() noexcept;

/// From here on a closed pipe on standard output or error does not end the process by SIGPIPE:
/// writing fails with EPIPE, and standard error says once that the run goes on. A handler that
/// somebody else installed stays.
void outlive_readers() noexcept;

}  // namespace v0
}  // namespace trireme
