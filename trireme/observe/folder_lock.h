// FolderLock: one job at a time writes into a folder, on all hosts that see it. Not thread safe.
//
// The lock is the file DIR/.lock, which names its holder (lock_holder.h). It gets its name by
// link(), which fails if the name exists, on NFS too. A killed holder leaves the file behind, so
// the next process finds out whether the holder still runs, and takes the folder over if not:
//
//   holder on                        decided by
//   the same kernel                  the process's number and start time
//   another kernel, a local disk     that kernel is gone: a disk has one user at a time
//   another kernel, a shared disk    the file's time: a running holder touches it; after `patience`
//                                    without a touch the holder counts as gone
//
// Several processes may find an ended holder. The one that gives its own file the name
// DIR/.lock.after, by link(), renames it to DIR/.lock. So only a file that was examined is replaced.
//
// The holder also has an open-file-description lock (F_OFD_SETLK) on the file, if the file system
// supports it. That lock alone is not enough: without a lock service (NFS with local_lock, many
// FUSE file systems) each host grants its own. But if it is refused, a holder certainly runs. It
// decides between containers of one kernel, which cannot see each other's processes. Ranks that
// inherit the descriptor keep the folder until they have ended too, even if their launcher was
// killed. flock() is local on some NFS clients; fcntl's older locks end with any close() of the
// file and are not inherited.
//
// Limit: a holder on another host that was stopped for longer than `patience`, on a file system
// without locks, may lose its folder. Before it completes its next checkpoint it learns that
// (storage/claim.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/observe/lock_holder.h"

namespace trireme::inline v0::observe {

/// The lock's name, and the prefix of its temporary files.
inline constexpr std::string_view kLockFile = ".lock";

/// Tests change these; everything else uses the defaults.
struct FolderLockOptions {
  std::optional<LockHolder> self = std::nullopt;  // nullopt: this process
  std::optional<bool> shared = std::nullopt;      // nullopt: as the file system is
  Duration touch_every = std::chrono::seconds(3);
  Duration patience = std::chrono::seconds(20);
  /// How long to wait for processes that a killed holder started, while the kernel ends them.
  Duration grace = std::chrono::seconds(10);
  bool open_file_locks = true;  // false: as on a file system that has none
};

class FolderLock {
 public:
  /// The folder must exist. Throws ConfigError naming the holder, ResourceError.
  explicit FolderLock(const std::string& directory, FolderLockOptions options = {});
  /// Removes the file.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// The folder stays locked while any process has this descriptor open. Close-on-exec.
  int descriptor() const noexcept;
  /// Whether another process has locked the folder meanwhile: this one was stopped for long.
  bool is_lost() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Tells readers of a folder whether a running job has locked it. Decides as FolderLock does, but
/// never waits: if only the file's time can decide, the holder counts as running until this object
/// has seen no change for `patience`.
class LockWatch {
 public:
  explicit LockWatch(std::string directory, FolderLockOptions options = {});
  bool is_locked();

 private:
  std::string directory_;
  Duration patience_;
  LockHolder self_;
  bool shared_ = false;
  std::int64_t changed_ = -1;  // the file's time, as last seen
  TimePoint since_;            // when this object first saw that time
};

/// Looks once: if only the file's time can decide, the holder counts as running.
bool is_locked(const std::string& directory);

}  // namespace trireme::inline v0::observe
