#include "trireme/storage/s3/lease.h"

#include <atomic>
#include <thread>

#include "trireme/base/signals_blocked.h"
#include "trireme/observe/folder_lock.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr int kConditionFailed = 412, kConflict = 409;

std::string key_below(const Address& address, std::string_view name) {
  return (address.prefix.empty() ? "" : address.prefix + "/") + std::string(name);
}

bool lost_the_race(const Refusal& refusal) {
  return refusal.status == kConditionFailed || refusal.status == kConflict;
}

}  // namespace

struct Lease::Impl {
  Impl(std::shared_ptr<S3Client> given, const Address& address, LeaseOptions chosen)
      : client(std::move(given)),
        place(address.text()),
        key(key_below(address, observe::kLockFile)),
        options(std::move(chosen)),
        self(options.self ? *options.self : observe::LockHolder::this_process()),
        text(self.to_text()) {}
  ~Impl() { release(); }

  [[noreturn]] void refuse_use(const std::optional<observe::LockHolder>& holder) const {
    throw ConfigError(
        place + " is in use by " + (holder ? holder->describe() : "another job"),
        {.operation = "lock",
         .advice = "Wait until that job has ended, or stop it; or give another checkpoint.path."});
  }

  // False if another process was faster.
  bool write(const Condition& condition) {
    try {
      client->put(key, std::as_bytes(std::span(text)), condition);
    } catch (const Refusal& refusal) {
      // Also if an earlier try has written it, and its answer was lost.
      if (!lost_the_race(refusal)) throw;
    }
    const auto found = client->get(key);
    if (!found || found->body != text) return false;
    etag = found->etag;
    return true;
  }

  // Whether the object `found` stays as it is for `patience`.
  bool is_abandoned(const Object& found) const {
    observe::info(
        place + " has a lock of a job that cannot be seen from here: waiting up to " +
        std::to_string(std::chrono::ceil<std::chrono::seconds>(options.patience).count()) +
        " s for a sign of it");
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

  void acquire() {
    for (;;) {
      const auto found = client->get(key);
      if (!found) {
        if (write({.absent = true})) return;
        continue;
      }
      const auto holder = observe::LockHolder::from_text(found->body);
      const auto running =
          holder ? observe::is_running(*holder, self, /*shared=*/true) : observe::Running::Unknown;
      if (running == observe::Running::Yes ||
          (running == observe::Running::Unknown && !is_abandoned(*found)))
        refuse_use(holder);
      if (write({.etag = found->etag})) return;
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

  void touch() {
    try {
      etag = client->put(key, std::as_bytes(std::span(text)), {.etag = etag});
    } catch (const Refusal& refusal) {
      if (lost_the_race(refusal) && !std::exchange(lost, true))
        observe::warning(
            "another job has taken " + place +
            " over, since this one did not reach it for a while: two jobs write there");
    } catch (const ResourceError&) {  // the storage is away; the next touch tells
    }
  }

  void release() noexcept {
    ending = true;
    client->waiter()->wake();
    if (toucher.joinable()) toucher.join();
    if (etag.empty() || lost) return;
    try {
      if (const auto now = client->head(key); now && now->etag == etag) client->remove(key);
    } catch (...) {  // the next job sees that this one has ended
    }
  }

  const std::shared_ptr<S3Client> client;
  const std::string place, key;
  const LeaseOptions options;
  const observe::LockHolder self;
  const std::string text;
  std::string etag;  // of the object, if it is this job's
  bool lost = false;
  std::atomic<bool> ending{false};
  std::thread toucher;
};

Lease::Lease(std::shared_ptr<S3Client> client, const Address& address, LeaseOptions options)
    : impl_(std::make_unique<Impl>(std::move(client), address, std::move(options))) {
  try {
    impl_->acquire();
  } catch (const Refusal& refusal) {
    throw ConfigError(impl_->place + " cannot be used: " + refusal.message(),
                      {.operation = "checkpoint.path", .advice = refusal.advice()});
  }
  impl_->keep_touching();
}

Lease::~Lease() = default;

}  // namespace trireme::inline v0::storage::s3
