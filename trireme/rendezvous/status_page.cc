#include "trireme/rendezvous/status_page.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr std::size_t kPageBytes = 4096;
static_assert(sizeof(StatusWords) <= kPageBytes);

template <std::size_t N>
using Words = std::array<std::atomic<std::uint64_t>, N>;

template <std::size_t N>
void put(Words<N>& text, std::string_view value) noexcept {
  std::uint64_t words[N] = {};
  std::memcpy(words, value.data(), std::min(value.size(), sizeof words));
  for (std::size_t i = 0; i < N; ++i) text[i].store(words[i], std::memory_order_relaxed);
}

template <std::size_t N>
std::string get(const Words<N>& text) {
  std::uint64_t words[N];
  for (std::size_t i = 0; i < N; ++i) words[i] = text[i].load(std::memory_order_relaxed);
  const char* bytes = reinterpret_cast<const char*>(words);
  return {bytes, strnlen(bytes, sizeof words)};
}

// The sequence number is odd while it lives, so that readers try again.
class Writing {
 public:
  explicit Writing(StatusWords& words) noexcept : words_(words) {
    words_.sequence.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Writing() { words_.sequence.fetch_add(1, std::memory_order_release); }

 private:
  StatusWords& words_;
};

std::int64_t nanoseconds(TimePoint now) {
  return std::chrono::duration_cast<Duration>(now.time_since_epoch()).count();
}

}  // namespace

int StatusPage::make_descriptor() {
  Descriptor page(memfd_create("trireme-status", MFD_CLOEXEC));
  if (!page || ftruncate(page.get(), kPageBytes) != 0)
    throw ResourceError(std::string("could not make a status page: ") + std::strerror(errno),
                        {.advice = "Raise the limit on open files."});
  return page.release();
}

StatusPage::StatusPage(int descriptor) {
  struct stat status {};
  if (descriptor >= 0 && (fstat(descriptor, &status) != 0 || status.st_size != off_t{kPageBytes})) {
    throw ConfigError("descriptor " + std::to_string(descriptor) + " is no status page",
                      {.operation = "join",
                       .label = "TRIREME_STATUS_FD",
                       .advice = "Start ranks by `trireme launch`; one process makes one Job."});
  }
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (descriptor >= 0) close(descriptor);
  if (page == MAP_FAILED) {
    throw ResourceError(std::string("could not map the status page: ") + std::strerror(errno));
  }
  words_ = static_cast<StatusWords*>(page);
  // Zeroed memory is a valid page except for the step ("none" is -1). The launcher maps it first.
  if (words_->sequence.load() == 0) {
    new (words_) StatusWords;
    words_->sequence.store(2);
  }
}

StatusPage::~StatusPage() { munmap(words_, kPageBytes); }

void StatusPage::set_wait(std::string_view operation, bool waiting, TimePoint now) noexcept {
  std::lock_guard lock(mutex_);
  const Writing writing(*words_);
  put(waiting ? words_->operation : words_->last_call, operation);
  words_->waiting.store(waiting, std::memory_order_relaxed);
  words_->since.store(nanoseconds(now), std::memory_order_relaxed);
}

void StatusPage::set_activity(std::string_view what, TimePoint now) noexcept {
  std::lock_guard lock(mutex_);
  const Writing writing(*words_);
  put(words_->last_call, what);
  words_->since.store(nanoseconds(now), std::memory_order_relaxed);
}

void StatusPage::set_step(long step) noexcept {
  words_->step.store(step, std::memory_order_relaxed);
}

void StatusPage::set_transport(std::weak_ptr<net::Transport> transport) {
  std::lock_guard lock(mutex_);
  transport_ = std::move(transport);
}

void StatusPage::set_last_words(std::string_view sentence) noexcept {
  put(words_->last_words, sentence);
}

std::string StatusPage::last_words() const { return get(words_->last_words); }

Activity StatusPage::read(TimePoint now) const {
  Activity activity;
  // A rank killed during a write leaves the sequence odd; then the last attempt's values count.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint32_t before = words_->sequence.load(std::memory_order_acquire);
    activity.waiting = words_->waiting.load(std::memory_order_relaxed) != 0;
    activity.operation = get(words_->operation);
    activity.last_call = get(words_->last_call);
    const std::int64_t since = words_->since.load(std::memory_order_relaxed);
    activity.since = since == 0 ? Duration::zero() : Duration(nanoseconds(now) - since);
    activity.step = static_cast<long>(words_->step.load(std::memory_order_relaxed));
    // A read-modify-write, so that no load above moves after it (TSan does not know fences).
    if (before % 2 == 0 && words_->sequence.fetch_add(0, std::memory_order_acq_rel) == before) {
      break;
    }
  }
  if (activity.since < Duration::zero()) activity.since = Duration::zero();
  std::unique_lock lock(mutex_);
  const auto transport = transport_.lock();
  lock.unlock();
  const TimePoint moved = transport ? net::last_moved(*transport) : TimePoint::min();
  if (moved != TimePoint::min()) activity.moved = std::max(now - moved, Duration::zero());
  return activity;
}

}  // namespace trireme::inline v0::rendezvous
