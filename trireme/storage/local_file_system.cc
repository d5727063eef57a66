#include "trireme/storage/file_system.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "trireme/base/descriptor.h"
#include "trireme/base/error.h"
#include "trireme/observe/folder_lock.h"

namespace trireme::inline v0::storage {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const bool many = error == EMFILE || error == ENFILE;
  throw ResourceError(
      "cannot " + what + " " + path + ": " + std::strerror(error),
      {.operation = "checkpoint",
       .advice = full   ? "Free some space (or raise the quota or file size limit) and "
                          "resume: what was saved before is intact."
                 : many ? "Raise the number of open files (ulimit -n)."
                        : "Check the folder's permissions and the disk."});
}

// Turns a write past the file size limit (ulimit -f) into an error like a full disk. It raises
// SIGXFSZ on the writing thread, which ends the process by default, so block and consume it there.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoFileSizeSignal() {
    if (sigismember(&before_, SIGXFSZ) == 0) {
      const timespec now{0, 0};
      while (sigtimedwait(&signal_, nullptr, &now) == SIGXFSZ) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_, before_;
};

class LocalFile final : public OutputFile {
 public:
  explicit LocalFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!file_) fail("create", path_, errno);
  }

  void write(std::span<const std::byte> bytes) override {
    const NoFileSizeSignal guard;
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void finish() override {
    if (::fsync(file_.get()) != 0 || ::close(file_.release()) != 0) fail("write", path_, errno);
  }

 private:
  const std::string path_;
  Descriptor file_;
};

[[noreturn]] void refuse_reading(const std::string& path, const std::string& reason) {
  throw CheckpointError("cannot read " + path + ": " + reason,
                        {.operation = "checkpoint",
                         .advice = "A file of the checkpoint is missing or unreadable here; on "
                                   "several hosts the folder must be shared."});
}

// Whether the process, the machine or the network is at fault, not the file. Network file systems
// and FUSE pass on the errors of their sockets.
bool is_lack(int error) {
  constexpr int kAll[] = {EMFILE,      ENFILE,    ENOMEM,       EIO,          ESTALE,
                          EREMOTEIO,   ETIMEDOUT, ENOTCONN,     ESHUTDOWN,    ECONNRESET,
                          EHOSTDOWN,   ENETDOWN,  ECONNABORTED, ECONNREFUSED, EHOSTUNREACH,
                          ENETUNREACH, EAGAIN};
  return std::find(std::begin(kAll), std::end(kAll), error) != std::end(kAll);
}

class LocalInput final : public InputFile {
 public:
  // O_NONBLOCK: opening a named pipe without a writer must not block; it is refused below.
  explicit LocalInput(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (!file_ && is_lack(errno)) fail("open", path_, errno);
    if (!file_) refuse_reading(path_, std::strerror(errno));
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) refuse_reading(path_, "its size is not known");
    if (!S_ISREG(status.st_mode)) refuse_reading(path_, "not a regular file");
    size_ = status.st_size;
  }

  std::int64_t size() const noexcept override { return size_; }
  void read(std::int64_t at, std::span<std::byte> to) override {
    while (!to.empty()) {
      const ssize_t count = ::pread(file_.get(), to.data(), to.size(), at);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && is_lack(errno)) fail("read", path_, errno);
      const std::string where = " at byte " + std::to_string(at);
      if (count < 0) refuse_reading(path_, std::strerror(errno) + where);
      if (count == 0) refuse_reading(path_, "it ends" + where);
      to = to.subspan(static_cast<std::size_t>(count));
      at += count;
    }
  }

 private:
  const std::string path_;
  const Descriptor file_;
  std::int64_t size_ = 0;
};

// Whether this user may not write into the folder, or make it.
bool is_denied(const std::string& directory) {
  fs::path nearest = directory;
  while (::access(nearest.c_str(), W_OK) != 0) {
    if (errno != ENOENT) return errno == EACCES || errno == EROFS || errno == EPERM;
    if (!nearest.has_relative_path()) return false;
    nearest = nearest.has_parent_path() ? nearest.parent_path() : ".";
  }
  return false;
}

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<LocalFile>(path);
  }

  std::unique_ptr<InputFile> open(const std::string& path) override {
    return std::make_unique<LocalInput>(path);
  }

  void make_directory(const std::string& path) override {
    std::error_code error;
    if (fs::is_directory(path, error)) return;
    const std::string parent = fs::path(path).parent_path().string();
    if (!parent.empty()) make_directory(parent);
    fs::create_directory(path, error);
    if (error) fail("make the folder", path, error.value() == EEXIST ? ENOTDIR : error.value());
    sync(parent.empty() ? "." : parent);
  }

  void rename(const std::string& from, const std::string& to) override {
    const int failed =
        renamed(from, to, [&] { return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno; });
    if (failed != 0) fail("rename " + from + " to", to, failed);
  }

  bool link(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) return true;
    const int failed = errno;
    const int none[] = {ENOENT, EXDEV, EPERM, EOPNOTSUPP, ENOSYS, EMLINK};
    if (std::count(std::begin(none), std::end(none), failed) > 0) return false;
    // Over NFS the reply to a link that was made may be lost, and the client asks again.
    std::error_code unknown;
    if (failed == EEXIST && fs::equivalent(from, to, unknown)) return true;
    fail("link " + from + " to", to, failed);
  }

  void remove(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail("remove", path, error.value());
  }

  std::vector<std::string> list(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error && error != std::errc::no_such_file_or_directory &&
        error != std::errc::not_a_directory) {
      fail("list", path, error.value());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void sync(const std::string& directory) override {
    const Descriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!file) fail("sync", directory, errno);
    const int failed = ::fsync(file.get()) != 0 ? errno : 0;
    // Some file systems cannot sync a folder; they order renames themselves.
    if (failed != 0 && failed != EINVAL && failed != ENOTSUP) fail("sync", directory, failed);
  }

  std::shared_ptr<void> lock(const std::string& directory) override {
    try {
      make_directory(directory);
      return std::make_shared<observe::FolderLock>(directory);
    } catch (const ResourceError&) {
      if (!is_denied(directory)) throw;
      return nullptr;
    }
  }
};

}  // namespace

int renamed(const std::string& from, const std::string& to, const std::function<int()>& rename) {
  struct stat before {
  }, after{};
  const bool known = ::lstat(from.c_str(), &before) == 0;
  const int failed = rename();
  if (failed == 0 || !known) return failed;
  const bool gone = ::lstat(from.c_str(), &after) != 0 && errno == ENOENT;
  const bool there = ::lstat(to.c_str(), &after) == 0 && after.st_dev == before.st_dev &&
                     after.st_ino == before.st_ino;
  return gone && there ? 0 : failed;
}

std::string text_of(InputFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::shared_ptr<FileSystem> local_file_system() { return std::make_shared<LocalFileSystem>(); }

}  // namespace trireme::inline v0::storage
