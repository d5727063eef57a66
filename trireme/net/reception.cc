#include "trireme/net/reception.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>

#include "trireme/base/error.h"

namespace trireme::inline v0::net {
namespace {

constexpr Duration kHandshakeLimit = std::chrono::seconds(10);
constexpr std::size_t kMostCallers = 128;

std::size_t most_callers() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostCallers;
  return std::clamp<std::size_t>(limit.rlim_cur / 8, 1, kMostCallers);
}

void watch(int epoll, int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) throw_system_error("epoll_ctl");
}

}  // namespace

Reception::Reception(Waiter& waiter, const Listener& listener, const Identity& mine,
                     std::string secret)
    : waiter_(waiter),
      listener_(listener),
      mine_(mine),
      secret_(std::move(secret)),
      most_callers_(most_callers()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_system_error("epoll_create1");
  watch(epoll_.get(), listener_.socket.get());
}

std::optional<std::pair<Descriptor, Identity>> Reception::next_now() {
  let_in();
  std::optional<std::pair<Descriptor, Identity>> proved;
  std::erase_if(callers_, [&](Caller& caller) {
    if (proved) return false;
    const Progress progress = serve(caller);
    if (progress == Progress::Waits) return waiter_.now() >= caller.limit;
    if (progress == Progress::Done) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, caller.socket.get(), nullptr);
      proved.emplace(std::move(caller.socket), caller.state.other());
    }
    return true;
  });
  return proved;
}

std::pair<Descriptor, Identity> Reception::next(TimePoint deadline, const std::string& what) {
  for (;;) {
    if (auto proved = next_now()) return std::move(*proved);
    // Callers are in the order of arrival, so the first one's limit ends first.
    const TimePoint limit = callers_.empty() ? deadline : callers_.front().limit;
    try {
      wait_for(waiter_, epoll_.get(), POLLIN, std::min(deadline, limit), what);
    } catch (const TimeoutError&) {
      if (waiter_.now() >= deadline) throw;
    }
  }
}

// If no descriptor is left, drops the caller that has waited longest.
Descriptor Reception::next_guest() {
  for (;;) {
    try {
      return accept_now(listener_);
    } catch (const ResourceError&) {
      if (callers_.empty()) throw;
      callers_.pop_front();
    }
  }
}

void Reception::let_in() {
  while (Descriptor socket = next_guest()) {
    if (callers_.size() == most_callers_) callers_.pop_front();
    watch(epoll_.get(), socket.get());
    callers_.push_back({std::move(socket),
                        HandshakeState(false, mine_, secret_),
                        waiter_.now() + kHandshakeLimit,
                        {}});
    if (!put(callers_.back())) callers_.pop_back();
  }
}

// A new connection has room for a whole handshake; a caller whose socket has not is dropped.
bool Reception::put(Caller& caller) {
  const auto bytes = caller.state.take_output();
  return send(caller.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Reception::Progress Reception::serve(Caller& caller) {
  while (const std::size_t wanted = caller.state.wanted()) {
    const ssize_t count =
        recv(caller.socket.get(), caller.bytes + caller.got, wanted - caller.got, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::Waits;
    if (count <= 0) return Progress::Drop;
    caller.got += static_cast<std::size_t>(count);
    if (caller.got < wanted) continue;
    caller.got = 0;
    try {
      caller.state.feed({caller.bytes, wanted});
    } catch (const RefusedError&) {
      put(caller);
      return Progress::Drop;
    }
    if (!put(caller)) return Progress::Drop;
  }
  return Progress::Done;
}

}  // namespace trireme::inline v0::net
