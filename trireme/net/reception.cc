#include "trireme/net/reception.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::net {

constexpr Duration kHandshakeLimit = std::chrono::seconds(10);
constexpr Duration kLeast = std::chrono::milliseconds(20);  // for a caller while they are too many
constexpr std::size_t kMostCallers = 128;

std::size_t Reception::limit_of_callers() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostCallers;
  return std::clamp<std::size_t>(limit.rlim_cur / 8, 1, kMostCallers);
}

Reception::Reception(Waiter& waiter, const Listener& listener, const Identity& mine,
                     std::string secret, std::size_t most_callers)
    : waiter_(waiter),
      listener_(listener),
      mine_(mine),
      secret_(std::move(secret)),
      most_callers_(most_callers) {
  epoll_.control(EPOLL_CTL_ADD, listener_.socket.get(), EPOLLIN);
}

std::optional<std::pair<Descriptor, Identity>> Reception::next_now() {
  std::optional<std::pair<Descriptor, Identity>> proved;
  let_in();
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
  if (!is_full()) listen(true);
  return proved;
}

std::pair<Descriptor, Identity> Reception::next(const Until& until, const std::string& what) {
  for (;;) {
    if (auto proved = next_now()) return std::move(*proved);
    // Callers are in the order of arrival, so the first one's limit ends first.
    TimePoint limit = until.deadline;
    if (!callers_.empty())
      limit = listens_ ? callers_.front().limit : callers_.front().came + kLeast;
    try {
      wait_for(waiter_, epoll_.get(), POLLIN, {std::min(until.deadline, limit), until.cancelled},
               what);
    } catch (const TimeoutError&) {
      if (waiter_.now() >= until.deadline) throw;
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
  for (;;) {
    const TimePoint now = waiter_.now();
    listen(!is_full() || now - callers_.front().came >= kLeast);
    if (!listens_) return;
    Descriptor socket = next_guest();
    if (!socket) return;
    if (is_full()) callers_.pop_front();
    epoll_.control(EPOLL_CTL_ADD, socket.get(), EPOLLIN);
    callers_.push_back(
        {std::move(socket), HandshakeState(false, mine_, secret_), now, now + kHandshakeLimit, {}});
    if (!put(callers_.back())) callers_.pop_back();
  }
}

void Reception::listen(bool wanted) {
  if (std::exchange(listens_, wanted) == wanted) return;
  epoll_.control(EPOLL_CTL_MOD, listener_.socket.get(), wanted ? EPOLLIN : 0u);
}

// A new connection has room for a whole handshake; a caller whose socket has none is dropped.
bool Reception::put(Caller& caller) {
  const auto bytes = caller.state.take_output();
  return send(caller.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Reception::Progress Reception::serve(Caller& caller) {
  while (const std::size_t wanted = caller.state.wanted()) {
    const ssize_t count =
        recv(caller.socket.get(), caller.bytes + caller.got, wanted - caller.got, 0);
    if (count < 0 && would_block()) return Progress::Waits;
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
