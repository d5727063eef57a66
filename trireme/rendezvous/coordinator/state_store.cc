#include "trireme/rendezvous/coordinator/state_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"
#include "trireme/observe/folder_lock.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr const char* kEtcd = "etcd://";

// A file that is replaced by a rename, so that a crash leaves the old one or the new one.
class FileStore final : public StateStore {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  std::optional<std::string> open() override {
    lock_.emplace(folder_);
    auto text = try_read_file(path());
    // An unreadable state must not count as none: a job would begin anew and overwrite it.
    if (!text && errno != ENOENT)
      fail("read",
           "See whether the disk and the network are well, and whether you may read there.");
    return text;
  }

  // Only this user may read it: the ranks' sessions are in it.
  void save(const std::string& text) override {
    refuse_if_lost();  // `next` is the other one's file, too
    const std::string next = path() + ".new";
    {
      if (::unlink(next.c_str()) != 0 && errno != ENOENT) fail();  // perhaps not this user's
      const Descriptor file(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (file.get() < 0) fail();
      for (std::size_t done = 0; done < text.size();) {
        const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) fail();
        done += static_cast<std::size_t>(wrote);
      }
      if (::fsync(file.get()) != 0) fail();
    }
    refuse_if_lost();
    if (::rename(next.c_str(), path().c_str()) != 0) fail();
    sync_folder();
  }

  void clear() override {
    refuse_if_lost();
    for (const std::string& file : {path() + ".new", path()})
      if (::unlink(file.c_str()) != 0 && errno != ENOENT) fail();
    sync_folder();
  }

  const std::string& address() const noexcept override { return folder_; }

 private:
  std::string path() const { return folder_ + "/coordinator.state"; }

  // This process, or its disk, may have hung for so long that another host counts it as gone.
  void refuse_if_lost() const {
    if (lock_ && lock_->is_lost()) refuse_taken_store(folder_);
  }

  [[noreturn]] void fail() const {
    fail("write", "See whether the disk is full, and whether you may write there.");
  }
  [[noreturn]] void fail(const std::string& what, const std::string& advice) const {
    throw ResourceError(
        "cannot " + what + " " + path() + ": " + std::generic_category().message(errno),
        {.operation = "coordinator", .advice = advice});
  }

  // Some file systems cannot sync a folder; they order renames themselves.
  void sync_folder() const {
    const Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0 || (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP))
      fail();
  }

  const std::string folder_;
  std::optional<observe::FolderLock> lock_;
};

[[noreturn]] void refuse_store(const std::string& address, const std::string& what) {
  throw ConfigError("the store " + address + " " + what,
                    {.operation = "coordinator",
                     .label = "--store",
                     .advice = "Name a folder that exists, or etcd://HOST:2379/KEY."});
}

}  // namespace

void refuse_taken_store(const std::string& address) {
  throw RefusedError(
      "another coordinator has taken " + address + " over",
      {.operation = "coordinator", .advice = "It goes on with the job; this one is not needed."});
}

std::unique_ptr<StateStore> make_store(const std::string& address, Duration timeout) {
  if (address.starts_with(kEtcd)) {
    const std::string rest = address.substr(std::string(kEtcd).size());
    const std::string endpoint = rest.substr(0, rest.find('/'));
    const std::string key = rest.size() > endpoint.size() ? rest.substr(endpoint.size() + 1) : "";
    if (!net::parse_endpoint(endpoint)) refuse_store(address, "names no host and port");
    if (key.empty()) refuse_store(address, "names no key: each job has one of its own");
    return etcd_store(address, endpoint, key, timeout);
  }
  if (address.find("://") != std::string::npos)
    refuse_store(address, "is of a kind that is not known");
  std::error_code error;
  if (!std::filesystem::is_directory(address, error)) refuse_store(address, "is no folder");
  return std::make_unique<FileStore>(address);
}

}  // namespace trireme::inline v0::rendezvous
