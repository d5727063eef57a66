#include "trireme/net/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/reception.h"

namespace trireme::inline v0::net {
namespace {

struct FrameHead {
  std::uint64_t magic = kFrameMagic;
  std::uint64_t length = 0;
};
static_assert(sizeof(FrameHead) == 16);

}  // namespace

struct Channel::Core final : ProgressSource {
  struct Outgoing {
    FrameHead head;
    std::span<const std::byte> bytes;
    WorkSource source;
    std::size_t sent = 0;
  };
  struct Incoming {
    std::vector<std::byte>* frame;
    WorkSource source;
  };

  Core(std::shared_ptr<Waiter> a_waiter, Descriptor a_socket, Identity a_peer, std::size_t limit)
      : waiter(std::move(a_waiter)),
        socket(std::move(a_socket)),
        epoll(epoll_create1(EPOLL_CLOEXEC)),
        peer(a_peer),
        max_frame_bytes(limit) {
    if (!epoll) throw_system_error("epoll_create1");
    watch(EPOLL_CTL_ADD, 0);
  }

  bool pending() const noexcept override { return num_pending.load() > 0; }
  int descriptor() const noexcept override { return epoll.get(); }
  void arm(bool) noexcept override {}

  bool poll() override {
    if (failure) return false;
    bool moved = false;
    while (!failure && !outgoing.empty() && write_some()) moved = true;
    while (!failure && !incoming.empty() && read_some()) moved = true;
    if (!failure) listen_for_more();
    return moved;
  }

  // Watch for an event only while a Work waits for it: level-triggered epoll would spin otherwise.
  void listen_for_more() {
    const std::uint32_t events = (incoming.empty() ? 0u : std::uint32_t{EPOLLIN}) |
                                 (outgoing.empty() ? 0u : std::uint32_t{EPOLLOUT});
    if (events != watched) watch(EPOLL_CTL_MOD, events);
  }
  void watch(int operation, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = socket.get()}};
    if (epoll_ctl(epoll.get(), operation, socket.get(), &event) != 0) {
      throw_system_error("epoll_ctl");
    }
    watched = events;
  }

  bool write_some() {
    Outgoing& one = outgoing.front();
    const auto head = std::as_bytes(std::span(&one.head, 1));
    iovec parts[2];
    const std::size_t head_sent = std::min(one.sent, head.size());
    const std::size_t body_sent = one.sent - head_sent;
    parts[0] = {const_cast<std::byte*>(head.data()) + head_sent, head.size() - head_sent};
    parts[1] = {const_cast<std::byte*>(one.bytes.data()) + body_sent, one.bytes.size() - body_sent};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) return stopped(count);
    one.sent += static_cast<std::size_t>(count);
    if (one.sent == head.size() + one.bytes.size()) {
      const WorkSource source = one.source;
      outgoing.pop_front();
      settle(source, nullptr);
    }
    return true;
  }

  bool read_some() {
    if (head_got < sizeof head) {
      const ssize_t count = recv(socket.get(), reinterpret_cast<std::byte*>(&head) + head_got,
                                 sizeof head - head_got, MSG_DONTWAIT);
      if (count <= 0) return stopped(count);
      head_got += static_cast<std::size_t>(count);
      if (head_got < sizeof head) return true;
      if (head.magic != kFrameMagic || head.length > max_frame_bytes) {
        fail(lost("it sent a frame of " + std::to_string(head.length) + " bytes; at most " +
                  std::to_string(max_frame_bytes) + " are taken"));
        return false;
      }
      incoming.front().frame->resize(head.length);
      body_got = 0;
    }
    std::vector<std::byte>& frame = *incoming.front().frame;
    if (body_got < frame.size()) {
      const ssize_t count =
          recv(socket.get(), frame.data() + body_got, frame.size() - body_got, MSG_DONTWAIT);
      if (count <= 0) return stopped(count);
      body_got += static_cast<std::size_t>(count);
      if (body_got < frame.size()) return true;
    }
    const WorkSource source = incoming.front().source;
    incoming.pop_front();
    head_got = 0;
    settle(source, nullptr);
    return true;
  }

  bool stopped(ssize_t count) {
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    fail(lost(count == 0 ? "it closed the connection" : std::strerror(errno)));
    return false;
  }

  std::exception_ptr lost(const std::string& why) const {
    return std::make_exception_ptr(PeerLost("the other end of a channel is gone: " + why,
                                            {.operation = "channel",
                                             .peer = peer.rank,
                                             .advice = "Look at the last lines that it printed."}));
  }

  void fail(const std::exception_ptr& error) {
    if (failure) return;
    failure = error;
    epoll_ctl(epoll.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
    shutdown(socket.get(), SHUT_RDWR);
    for (const auto& one : std::exchange(outgoing, {})) settle(one.source, error);
    for (const auto& one : std::exchange(incoming, {})) settle(one.source, error);
  }

  WorkSource begin(const char* what) {
    num_pending.fetch_add(1);
    return WorkSource(waiter, nullptr, what);
  }
  void settle(const WorkSource& source, const std::exception_ptr& error) {
    num_pending.fetch_sub(1);
    error ? source.fail(error) : source.complete();
  }

  const std::shared_ptr<Waiter> waiter;
  const Descriptor socket, epoll;
  const Identity peer;
  const std::size_t max_frame_bytes;
  std::atomic<int> num_pending{0};
  std::exception_ptr failure;
  std::deque<Outgoing> outgoing;
  std::deque<Incoming> incoming;
  FrameHead head;
  std::size_t head_got = 0, body_got = 0;
  std::uint32_t watched = 0;
};

Channel::Channel(std::shared_ptr<Waiter> waiter, Descriptor socket, Identity peer,
                 std::size_t max_frame_bytes)
    : waiter_(std::move(waiter)),
      core_(std::make_shared<Core>(waiter_, std::move(socket), peer, max_frame_bytes)) {
  waiter_->add(core_);
}

Channel::~Channel() {
  close();
  waiter_->remove(core_.get());
}

std::shared_ptr<Channel> Channel::dial(std::shared_ptr<Waiter> waiter, const std::string& address,
                                       const ChannelOptions& options) {
  const TimePoint deadline = waiter->now() + options.timeout;
  Descriptor socket = net::dial(*waiter, address, deadline);
  const Identity peer =
      handshake(*waiter, socket.get(), true, options.identity, options.secret, deadline);
  return over(std::move(waiter), std::move(socket), peer, options.max_frame_bytes);
}

std::shared_ptr<Channel> Channel::over(std::shared_ptr<Waiter> waiter, Descriptor socket,
                                       const Identity& peer, std::size_t max_frame_bytes) {
  return std::shared_ptr<Channel>(
      new Channel(std::move(waiter), std::move(socket), peer, max_frame_bytes));
}

const Identity& Channel::peer() const noexcept { return core_->peer; }

Work Channel::send(std::span<const std::byte> bytes) {
  const WorkSource source = core_->begin("channel send");
  waiter_->run([core = core_, bytes, source] {
    if (core->failure) return core->settle(source, core->failure);
    core->outgoing.push_back({FrameHead{kFrameMagic, bytes.size()}, bytes, source});
    core->poll();
  });
  return source.work();
}

Work Channel::receive(std::vector<std::byte>& frame) {
  const WorkSource source = core_->begin("channel receive");
  waiter_->run([core = core_, &frame, source] {
    if (core->failure) return core->settle(source, core->failure);
    core->incoming.push_back({&frame, source});
    core->poll();
  });
  return source.work();
}

void Channel::close() {
  waiter_->run([core = core_] {
    core->fail(std::make_exception_ptr(
        PeerLost("this end of the channel was closed", {.operation = "channel"})));
  });
}

Acceptor::Acceptor(std::shared_ptr<Waiter> waiter, ChannelOptions options)
    : waiter_(std::move(waiter)),
      options_(std::move(options)),
      listener_(options_.host.empty() ? listen_unix() : listen_tcp(options_.host)) {
  if (options_.secret.empty() && !options_.host.empty() && !is_loopback(options_.host)) {
    throw ConfigError(
        "listening on " + options_.host + " needs a secret",
        {.operation = "channel", .advice = "Set TRIREME_JOB_SECRET_FILE, or listen on 127.0.0.1."});
  }
  reception_ = std::make_unique<Reception>(*waiter_, listener_, options_.identity, options_.secret);
}

Acceptor::~Acceptor() = default;

std::shared_ptr<Channel> Acceptor::accept(Deadline deadline) {
  const TimePoint end = deadline.or_else(Deadline::in(options_.timeout)).from(waiter_->now());
  auto [socket, peer] = reception_->next(end, "a channel to be dialled");
  return Channel::over(waiter_, std::move(socket), peer, options_.max_frame_bytes);
}

}  // namespace trireme::inline v0::net
