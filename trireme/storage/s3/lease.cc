#include "trireme/storage/s3/lease.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "trireme/base/refuse.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/observe/folder_lock.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr int kConditionFailed = 412, kConflict = 409;

std::string key_below(const Address& address, std::string_view name) {
  return (address.prefix.empty() ? "" : address.prefix + "/") + std::string(name);
}

// Another process has written or removed the object.
bool lost_the_race(const Refusal& refusal) {
  return refusal.status == kConditionFailed || refusal.status == kConflict ||
         (refusal.status == kNotFound && refusal.code == "NoSuchKey");
}

// The places of which this process has, or is about to have, a lease.
class Places {
 public:
  bool add(const std::string& place) {
    const std::lock_guard lock(mutex_);
    return all_.insert(place).second;
  }
  void remove(const std::string& place) {
    const std::lock_guard lock(mutex_);
    all_.erase(place);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> all_;
};
Places& places_of_process() {
  static Places& all = *new Places;  // leases of other static objects may end later
  return all;
}

bool same_process(const observe::LockHolder& a, const observe::LockHolder& b) {
  return std::tie(a.boot, a.processes, a.process, a.start_time) ==
         std::tie(b.boot, b.processes, b.process, b.start_time);
}

struct Lease {
  Lease(std::shared_ptr<S3Client> given, const Address& address, LeaseOptions chosen)
      : client(std::move(given)),
        once(client->with({.attempts = 1, .longest_call = chosen.longest_call})),
        place(address.text()),
        key(key_below(address, observe::kLockFile)),
        options(std::move(chosen)),
        self(options.self ? *options.self : observe::LockHolder::this_process()),
        text(self.to_text()),
        only_one(places_of_process().add(place)) {}
  ~Lease() { release(); }

  [[noreturn]] void refuse_use(const std::optional<observe::LockHolder>& holder) const {
    refuse("lock", place + " is in use by " + (holder ? holder->describe() : "another job"),
           "Wait until that job has ended, or stop it; or give another checkpoint.path.");
  }

  // False if another process was faster.
  bool write(S3Client& with, const Condition& condition) {
    try {
      with.put(key, std::as_bytes(std::span(text)), condition);
    } catch (const Refusal& refusal) {
      // Perhaps an earlier try has written it and its answer was lost: read it back.
      if (!lost_the_race(refusal)) throw;
    }
    const auto found = with.get(key);
    if (!found || found->body != text) return false;
    etag = found->etag;
    return true;
  }

  // Waits `patience`. True if the object `found` does not change in that time.
  bool is_abandoned(const Object& found) const {
    observe::info(
        place + " is locked by a job that cannot be seen from here: waiting up to " +
        std::to_string(std::chrono::ceil<std::chrono::seconds>(options.patience).count()) +
        " s to see whether that job still runs");
    const auto& waiter = client->waiter();
    const TimePoint until = waiter->now() + options.patience;
    while (waiter->now() < until) {
      waiter->sleep(options.look);
      const auto now = client->head(key);
      if (!now) return true;
      if (now->etag != found.etag || now->modified != found.modified) return false;
    }
    return true;
  }

  // An earlier lease of this process is taken over: it could not be released while the storage was
  // away, or the answer to its first write was lost.
  void acquire() {
    for (;;) {
      const auto found = client->get(key);
      if (!found) {
        if (write(*client, {.absent = true})) return;
        continue;
      }
      const auto holder = observe::LockHolder::from_text(found->body);
      const auto running =
          holder ? observe::is_running(*holder, self, /*shared=*/true) : observe::Running::Unknown;
      const bool left_behind = only_one && holder && same_process(*holder, self);
      if (!left_behind && (running == observe::Running::Yes ||
                           (running == observe::Running::Unknown && !is_abandoned(*found))))
        refuse_use(holder);
      if (write(*client, {.etag = found->etag})) return;
    }
  }

  void keep_touching() {
    const SignalsBlocked signals_blocked;  // only threads that existed before handle signals
    toucher = std::thread([this] {
      const auto& waiter = client->waiter();
      while (!waiter->wait_until([this] { return ending.load(); },
                                 waiter->now() + options.touch_every))
        touch();
    });
  }

  // False if another job has the lock.
  bool keep() {
    try {
      etag = once->put(key, std::as_bytes(std::span(text)), {.etag = etag});
      return true;
    } catch (const Refusal& refusal) {
      if (!lost_the_race(refusal)) throw;
    }
    // Perhaps an earlier touch of this job changed it and its answer was lost.
    const auto found = once->get(key);
    if (!found) return write(*once, {.absent = true});
    if (found->body == text) etag = found->etag;
    return found->body == text;
  }

  // A touch has one try, so that several touches fit into the patience of other jobs.
  void touch() {
    try {
      if (!lost && !keep()) {
        lost = true;
        observe::warning("another job has taken over " + place +
                         ", since this one did not reach it for a while: this job's next "
                         "checkpoint will fail, so stop it");
      }
    } catch (const ResourceError&) {  // the storage is away, or refuses; the next touch tries again
    }
  }

  void release() noexcept {
    ending = true;
    client->waiter()->wake();
    if (toucher.joinable()) toucher.join();
    try {
      if (const auto now = etag.empty() || lost ? std::nullopt : once->get(key);
          now && now->body == text)
        once->remove(key);
    } catch (...) {  // the next job finds out that this one has ended
    }
    if (only_one) places_of_process().remove(place);
  }

  const std::shared_ptr<S3Client> client, once;
  const std::string place, key;
  const LeaseOptions options;
  const observe::LockHolder self;
  const std::string text;
  const bool only_one;  // no other lease of this process has the place
  std::string etag;     // of the object, if it is this job's
  bool lost = false;
  std::atomic<bool> ending{false};
  std::thread toucher;
};

}  // namespace

std::shared_ptr<void> take_lease(std::shared_ptr<S3Client> client, const Address& address,
                                 LeaseOptions options) {
  const auto lease = std::make_shared<Lease>(std::move(client), address, std::move(options));
  try {
    lease->acquire();
  } catch (const Refusal& refusal) {
    refuse("checkpoint.path", lease->place + " cannot be used: " + refusal.message(),
           refusal.advice());
  }
  lease->keep_touching();
  return lease;
}

}  // namespace trireme::inline v0::storage::s3
