#include "trireme/observe/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "trireme/base/descriptor.h"
#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::observe {
namespace {

constexpr Duration kLook =
    std::chrono::milliseconds(20);  // polled, since network file systems send no events

enum class Grant { Given, Refused, NotKnownHere };

// F_OFD_SETLK: locks the whole file for this open file; released when the last process that has it
// open ends. F_OFD_GETLK: tests whether that is possible.
Grant ask_for(const Descriptor& file, int command) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file.get(), command, &whole) == 0)
    return command == F_OFD_SETLK || whole.l_type == F_UNLCK ? Grant::Given : Grant::Refused;
  return errno == EAGAIN || errno == EACCES ? Grant::Refused : Grant::NotKnownHere;
}

// Whether the holder's kernel is this one, so that its lock on the open file can be seen here.
bool is_one_kernel(const std::optional<LockHolder>& holder, const LockHolder& self, bool shared) {
  return !shared || (holder && !self.boot.empty() && holder->boot == self.boot);
}

std::string path_in(const std::string& directory) {
  return directory + "/" + std::string(kLockFile);
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::int64_t time_of(const struct stat& status) {  // nanoseconds
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

bool is_named(const Descriptor& file, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(file.get(), &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         same_file(open, named);
}

std::string content_of(const Descriptor& file) {
  std::string text(4096, '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

// Touches the file to show hosts that cannot see this process that it runs.
class Toucher {
 public:
  Toucher(int file, Duration every) {
    const SignalsBlocked signals_blocked;  // only threads that existed before handle signals
    thread_ = std::jthread([this, file, every](const std::stop_token& stop) {
      std::unique_lock lock(mutex_);
      while (!stop.stop_requested()) {
        ::futimens(file, nullptr);
        changed_.wait_for(lock, stop, every, [] { return false; });
      }
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // joined before the other members are destroyed
};

}  // namespace

struct FolderLock::Impl {
  Impl(std::string folder, FolderLockOptions given)
      : directory(std::move(folder)),
        path(path_in(directory)),
        options(std::move(given)),
        self(options.self ? *options.self : LockHolder::this_process()),
        shared(options.shared ? *options.shared : is_shared_file_system(directory)) {}
  ~Impl() {
    toucher.reset();
    if (is_named(file, path)) ::unlink(path.c_str());
  }

  [[noreturn]] void fail(const std::string& what, int error) const {
    throw ResourceError(
        "cannot lock the folder " + directory + ": " + what + ": " + std::strerror(error),
        {.operation = "lock", .advice = "Check its permissions and the disk."});
  }

  [[noreturn]] void refuse_use(const std::optional<LockHolder>& holder,
                               const std::string& why) const {
    refuse("lock",
           directory + " is in use by " + (holder ? holder->describe() : "another job") + why,
           "Wait until that job has ended, or stop it; or give another folder.");
  }

  std::string unique_name() const {
    static std::atomic<int> counter{0};
    std::string host = self.host;
    for (char& c : host)
      if (c == '/') c = '_';
    return path + "." + host.substr(0, 64) + "." + std::to_string(self.process) + "." +
           std::to_string(self.start_time) + "." + std::to_string(counter++);
  }

  Grant lock_open_file(const Descriptor& open) const {
    return options.open_file_locks ? ask_for(open, F_OFD_SETLK) : Grant::NotKnownHere;
  }

  void write_holder(const Descriptor& open) const {
    const std::string text = self.to_text();
    errno = ENOSPC;  // for a short write
    if (::write(open.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::fsync(open.get()) != 0)
      fail("writing " + path, errno);
  }

  // Makes a locked file that names this holder. An empty descriptor: the name exists.
  Descriptor create(const std::string& name) const {
    Descriptor made(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!made && errno == EEXIST) return made;
    if (!made) fail("making " + name, errno);
    lock_open_file(made);
    try {
      write_holder(made);
    } catch (...) {
      ::unlink(name.c_str());
      throw;
    }
    return made;
  }

  // Gives `name` to a locked file that names this holder. False if another process has the name.
  bool make(const std::string& name) {
    const std::string first = unique_name();
    Descriptor made = create(first);
    if (!made) fail("making " + first, EEXIST);
    const int failed = ::link(first.c_str(), name.c_str()) == 0 ? 0 : errno;
    struct stat status {};  // over NFS the reply to a successful link() may be lost
    const bool linked = failed == 0 || (::fstat(made.get(), &status) == 0 && status.st_nlink == 2);
    ::unlink(first.c_str());
    if (linked) {
      file = std::move(made);
      return true;
    }
    if (failed == EEXIST || failed == ENOENT) return false;  // ENOENT: swept; try again
    if (failed != EPERM && failed != EOPNOTSUPP && failed != ENOSYS && failed != EMLINK)
      fail("naming " + name, failed);
    file = create(name);  // no hard links: the name exists a moment before the content
    return static_cast<bool>(file);
  }

  // Waits `patience`. True if the file did not change in that time; false as soon as it does.
  bool is_abandoned(const Descriptor& found, const std::string& name) const {
    struct stat before {};
    if (::fstat(found.get(), &before) != 0) return false;
    info(directory + " is locked by a job that cannot be seen from here: waiting up to " +
         std::to_string(std::chrono::ceil<std::chrono::seconds>(options.patience).count()) +
         " s to see whether that job still runs");
    const TimePoint until = steady_now() + options.patience;
    do {
      std::this_thread::sleep_for(kLook);
      // Opened again, because only then does an NFS client ask the server instead of its cache.
      const Descriptor again(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
      struct stat now {};
      if (!again || ::fstat(again.get(), &now) != 0 || !same_file(before, now)) return false;
      if (time_of(now) != time_of(before)) return false;
    } while (steady_now() < until);
    return true;
  }

  // Whether the holder that `found` names has ended. False: look again. Throws if a job has the
  // folder; another name than `path` is that of a process that is about to have it.
  bool has_ended(const Descriptor& found, const std::string& name, TimePoint until) const {
    const auto holder = LockHolder::from_text(content_of(found));
    const Running running = holder ? is_running(*holder, self, shared) : Running::Unknown;
    const bool is_lock = name == path;
    if (running == Running::Yes && is_lock) refuse_use(holder, "");
    const Grant grant = running == Running::Yes ? Grant::Refused : lock_open_file(found);
    if (grant == Grant::Refused) {
      // The holder's ranks are ending, or another process is taking the folder over now.
      if (steady_now() > until)
        refuse_use(holder, running == Running::No
                               ? " (it has ended, but a process that it started still runs, or "
                                 "another job takes the folder over)"
                               : "");
      if (running == Running::Unknown && holder && is_lock) refuse_use(holder, "");
      std::this_thread::sleep_for(kLook);
      return false;
    }
    if (!holder && steady_now() < until) {  // made in place, and not written yet
      std::this_thread::sleep_for(kLook);
      return false;
    }
    const bool is_told = grant == Grant::Given && is_one_kernel(holder, self, shared);
    if (running != Running::Unknown || is_told || is_abandoned(found, name)) return true;
    if (is_named(found, name) && is_lock) refuse_use(holder, "");
    return false;
  }

  // Takes `name`, from a holder that has ended too. False: try again.
  bool take(const std::string& name, TimePoint until) {
    if (make(name)) return true;
    Descriptor found(::open(name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (!found && errno == EACCES)  // another user's: read it without a lock
      found = Descriptor(::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!found && errno == ENOENT) return false;
    if (!found) fail("opening " + name, errno);
    if (!has_ended(found, name, until)) return false;
    // Only the process that has the name `next` may replace the file, so it is still the file that
    // was examined. If that process was killed, `next` is taken in the same way.
    const std::string next = name + ".after";
    if (!take(next, until)) return false;
    const int failed =
        is_named(found, name) && ::rename(next.c_str(), name.c_str()) != 0 ? errno : 0;
    if (is_named(file, name)) return true;
    if (is_named(file, next)) ::unlink(next.c_str());
    file = Descriptor();
    if (failed != 0 && failed != ENOENT) fail("replacing a lock that was left behind", failed);
    return false;
  }

  void acquire() {
    const TimePoint until = steady_now() + options.grace;
    while (!take(path, until)) {
    }
    sweep();
    if (shared) toucher = std::make_unique<Toucher>(file.get(), options.touch_every);
  }

  // Removes files that killed processes left. A process whose file is removed makes it again.
  void sweep() const {
    std::error_code ignored;
    for (std::filesystem::directory_iterator entry(directory, ignored), end;
         !ignored && entry != end; entry.increment(ignored)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(std::string(kLockFile) + ".")) ::unlink(entry->path().c_str());
    }
  }

  const std::string directory, path;
  const FolderLockOptions options;
  const LockHolder self;
  const bool shared;
  Descriptor file;
  std::unique_ptr<Toucher> toucher;
};

FolderLock::FolderLock(const std::string& directory, FolderLockOptions options)
    : impl_(std::make_unique<Impl>(directory, std::move(options))) {
  impl_->acquire();
}

FolderLock::~FolderLock() = default;

int FolderLock::descriptor() const noexcept { return impl_->file.get(); }

bool FolderLock::is_lost() const {
  const Descriptor found(::open(impl_->path.c_str(), O_RDONLY | O_CLOEXEC));  // as is_abandoned()
  struct stat own {
  }, now{};
  return found && ::fstat(impl_->file.get(), &own) == 0 && ::fstat(found.get(), &now) == 0 &&
         !same_file(own, now);
}

LockWatch::LockWatch(std::string directory, FolderLockOptions options)
    : directory_(std::move(directory)),
      patience_(options.patience),
      self_(options.self ? *options.self : LockHolder::this_process()),
      shared_(options.shared ? *options.shared : is_shared_file_system(directory_)) {}

bool LockWatch::is_locked() {
  const std::string path = path_in(directory_);
  const Descriptor found(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat now {};
  if (!found || ::fstat(found.get(), &now) != 0) return false;
  const auto holder = LockHolder::from_text(content_of(found));
  const Running running = holder ? is_running(*holder, self_, shared_) : Running::Unknown;
  if (running != Running::Unknown) return running == Running::Yes;
  const Grant grant = ask_for(found, F_OFD_GETLK);
  if (grant == Grant::Refused) return true;
  if (grant == Grant::Given && holder && is_one_kernel(holder, self_, shared_)) return false;
  const std::int64_t changed = time_of(now);
  if (std::exchange(changed_, changed) != changed) since_ = steady_now();
  return steady_now() - since_ < patience_;
}

bool is_locked(const std::string& directory) { return LockWatch(directory).is_locked(); }

}  // namespace trireme::inline v0::observe
