// FolderLock: one job at a time writes into a folder, on all the hosts that see it.
//
// The lock is the file DIR/.lock, which names its holder (lock_holder.h). It gets its name by
// link(), which fails where the name is taken, on NFS, too. A file alone would stay behind after a
// kill, so the next one finds out whether its holder still runs and takes the folder over if not:
//
//   the same kernel                the process's number and start time say it
//   another kernel, a local disk   that kernel is gone: one at a time has the disk
//   another kernel, a shared disk  the holder touches its file; one that nobody has touched for
//                                  `patience` belongs to nobody
//
// In addition the holder has an open-file-description lock (F_OFD_SETLK) on the file where the file
// system knows such. It cannot stand alone: without a lock service (NFS with local_lock, many FUSE
// file systems) each host grants its own. But where it is refused, somebody runs for sure; between
// containers of one kernel, which do not see each other's processes, it is what decides; and ranks
// that inherit the descriptor keep the folder until they, too, have ended, though their launcher
// was killed. flock() is local on some NFS clients, and fcntl's older locks end with any close() of
// the file and are not inherited.
//
// A holder that was stopped for longer than `patience` on another host, on a file system without
// locks, may find its folder taken. One thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/observe/lock_holder.h"

namespace trireme {
inline namespace v0 {
namespace observe {

/// The lock's name, and the beginning of the names that lie beside it for a moment.
inline constexpr std::string_view kLockFile = ".lock";

/// The defaults are for use; others are for tests.
struct FolderLockOptions {
  std::optional<LockHolder> self = std::nullopt;  // nullopt: this process
  std::optional<bool> shared = std::nullopt;      // nullopt: as the file system is
  Duration touch_every = std::chrono::seconds(3);
  Duration patience = std::chrono::seconds(20);
  /// For processes that a killed holder has started, which the kernel is ending.
  Duration grace = std::chrono::seconds(10);
};

class FolderLock {
 public:
  /// The folder must be there. Throws ConfigError naming the holder, ResourceError where the file
  /// cannot be made.
  explicit FolderLock(const std::string& directory, FolderLockOptions options = {});
  /// Removes the file.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Open in a process that inherits it, it keeps the folder locked. Close-on-exec here.
  int descriptor() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace observe
}  // namespace v0
}  // namespace trireme
