// The standard streams of a process, and the signals that the system sends about them.
//
// A program may start with closed standard streams (`>&-`), or their reader may end while it runs
// (`| head -1`). Nothing here throws or allocates.
#pragma once

namespace trireme::inline v0 {

/// Opens /dev/null on descriptors 0, 1 and 2 if they are closed. Otherwise the next socket or
/// memory file would become standard error. Call it first. From then on, writing beyond the file
/// size limit (`ulimit -f`) fails with EFBIG instead of raising SIGXFSZ.
void open_standard_streams() noexcept;

/// From now on a closed pipe on standard output or error does not end the process by SIGPIPE:
/// writing fails with EPIPE, and standard error says once that the run continues. A handler that
/// the program has installed is kept.
void outlive_readers() noexcept;

}  // namespace trireme::inline v0
