#include "trireme/net/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/work_source.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/reception.h"
#include "trireme/net/shm/memory.h"

namespace trireme::inline v0::net {
namespace {

struct Core final : ProgressSource, std::enable_shared_from_this<Core> {
  struct Outgoing {
    FrameStart start;
    std::span<const std::byte> head, payload;
    std::shared_ptr<CreatedMemory> area;
    std::optional<WorkSource> source;  // none for an area
    std::size_t sent = 0;
  };
  struct Incoming {
    ChannelFrame* frame;
    WorkSource source;
  };

  Core(std::shared_ptr<Waiter> a_waiter, std::shared_ptr<Waiter> a_carrier, Descriptor a_socket,
       Identity a_peer, std::size_t limit)
      : waiter(std::move(a_waiter)),
        carrier(std::move(a_carrier)),
        socket(std::move(a_socket)),
        peer(a_peer),
        max_frame_bytes(limit) {}

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
  // epoll reports the end of a connection even if no event is asked for, so a socket that nobody
  // waits for is not in it.
  void listen_for_more() {
    const std::uint32_t events = (incoming.empty() ? 0u : std::uint32_t{EPOLLIN}) |
                                 (outgoing.empty() || pausing ? 0u : std::uint32_t{EPOLLOUT});
    if (events == watched) return;
    epoll.control(watched == 0  ? EPOLL_CTL_ADD
                  : events == 0 ? EPOLL_CTL_DEL
                                : EPOLL_CTL_MOD,
                  socket.get(), events);
    watched = events;
  }

  bool write_some() {
    Outgoing& one = outgoing.front();
    iovec parts[3];
    std::size_t skip = one.sent, left = 0;
    for (int i = 0; const std::span<const std::byte> part :
                    {std::as_bytes(std::span(&one.start, 1)), one.head, one.payload}) {
      const std::size_t done = std::min(skip, part.size());
      skip -= done;
      left += part.size() - done;
      parts[i++] = {const_cast<std::byte*>(part.data()) + done, part.size() - done};
    }
    const int area = one.area ? one.area->descriptor.get() : -1;
    const std::size_t passed = one.area && one.sent == 0 ? 1 : 0;
    const ssize_t count = send_parts(socket.get(), parts, {&area, passed});
    if (count <= 0) {
      if (!may_send_later())
        end_writing(lost(std::strerror(errno)));
      else if (errno == ETOOMANYREFS)
        try_again_soon();
      return false;
    }
    one.sent += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) == left) {
      const std::optional<WorkSource> source = one.source;
      outgoing.pop_front();
      if (source) settle(*source, nullptr);
    }
    return true;
  }

  // The socket counts as writable meanwhile, so that epoll cannot tell when to send.
  void try_again_soon() {
    if (std::exchange(pausing, true)) return;
    carrier->run_at(carrier->now() + kSendPause, [weak = weak_from_this()] {
      const auto core = weak.lock();
      if (!core) return;
      core->pausing = false;
      core->poll();
    });
  }

  // Reads the arriving frame: its start, then its head and payload.
  bool read_some() {
    if (start_got < sizeof start) return read_start();
    ChannelFrame& frame = *incoming.front().frame;
    const std::span<std::byte> head = frame.writable_head(), payload = frame.payload();
    if (body_got < head.size() + payload.size()) {
      const std::size_t head_got = std::min(body_got, head.size());
      const std::size_t payload_got = body_got - head_got;
      iovec parts[2] = {{head.data() + head_got, head.size() - head_got},
                        {payload.data() + payload_got, payload.size() - payload_got}};
      const ssize_t count = receive_parts(socket.get(), parts);
      if (count <= 0) return stopped_reading(count);
      body_got += static_cast<std::size_t>(count);
      if (body_got < head.size() + payload.size()) return true;
    }
    const WorkSource source = incoming.front().source;
    incoming.pop_front();
    start_got = 0;
    settle(source, nullptr);
    return true;
  }

  bool read_start() {
    iovec part{reinterpret_cast<std::byte*>(&start) + start_got, sizeof start - start_got};
    PassedDescriptors passed;
    const ssize_t count = receive_parts(socket.get(), {&part, 1}, &passed);
    if (count <= 0) return stopped_reading(count);
    // A descriptor that the start does not announce is closed.
    if (!passed.descriptors.empty()) arrived_area = std::move(passed.descriptors.back());
    start_got += static_cast<std::size_t>(count);
    return start_got < sizeof start || take_start();
  }

  bool take_start() {
    const std::uint64_t bytes = start.head + start.payload;
    if (start.magic != kFrameMagic) {
      fail(lost("it sent something that is no frame of this version"));
      return false;
    }
    if (start.head > Channel::kMostHeadBytes || bytes < start.payload || bytes > max_frame_bytes) {
      fail(lost("it sent a frame of " + std::to_string(bytes) + " bytes; at most " +
                std::to_string(max_frame_bytes) + " are taken"));
      return false;
    }
    if (start.area > 0) return take_area();
    try {
      incoming.front().frame->resize(start.head, start.payload);
    } catch (const std::bad_alloc&) {
      fail(lost("there is no memory for the " + std::to_string(bytes) + " bytes that it sent"));
      return false;
    }
    body_got = 0;
    return true;
  }

  bool take_area() {
    try {
      if (!arrived_area) throw RefusedError("no descriptor came with it");
      auto memory = open_memory(arrived_area, start.area);
      const std::lock_guard lock(areas_mutex);
      areas_of_peer.push_back(std::move(memory));
    } catch (const Error& error) {
      fail(lost("it sent memory that cannot be mapped: " + error.message()));
      return false;
    }
    arrived_area = Descriptor();
    start_got = 0;
    return true;
  }

  bool stopped_reading(ssize_t count) {
    if (count < 0 && would_block()) return false;
    fail(lost(count == 0 ? "it closed the connection" : std::strerror(errno)));
    return false;
  }

  std::exception_ptr lost(const std::string& why) const {
    return std::make_exception_ptr(PeerLost("the other end of a channel is gone: " + why,
                                            {.operation = "channel",
                                             .peer = peer.rank,
                                             .advice = "Look at the last lines that it printed."}));
  }

  // Frames that have arrived can still be received: reading goes on to the end of the stream.
  void end_writing(const std::exception_ptr& error) {
    if (!write_failure) write_failure = error;
    shutdown(socket.get(), SHUT_WR);
    for (const auto& one : std::exchange(outgoing, {}))
      if (one.source) settle(*one.source, error);
  }

  void fail(const std::exception_ptr& error) {
    if (failure) return;
    failure = error;
    epoll_ctl(epoll.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
    shutdown(socket.get(), SHUT_RDWR);
    end_writing(error);
    for (const auto& one : std::exchange(incoming, {})) settle(one.source, error);
  }

  WorkSource begin(const char* what) {
    num_pending.fetch_add(1);
    return WorkSource(waiter, nullptr, what);
  }
  void settle(const WorkSource& source, const std::exception_ptr& error) {
    num_pending.fetch_sub(1);
    if (carrier == waiter) return source.settle(error);
    waiter->run([source, error] { source.settle(error); });
  }

  const std::shared_ptr<Waiter> waiter;   // Works settle in its context
  const std::shared_ptr<Waiter> carrier;  // everything else runs in its context; often the same one
  const Descriptor socket;
  const Epoll epoll;
  const Identity peer;
  const std::size_t max_frame_bytes;
  std::atomic<int> num_pending{0};
  std::exception_ptr failure;        // of both directions
  std::exception_ptr write_failure;  // of sending; set if `failure` is
  std::deque<Outgoing> outgoing;
  std::deque<Incoming> incoming;
  FrameStart start;  // of the frame that is arriving
  std::size_t start_got = 0, body_got = 0;
  Descriptor arrived_area;
  std::uint32_t watched = 0;
  bool pausing = false;  // try_again_soon() will poll
  std::mutex areas_mutex;
  std::vector<std::shared_ptr<SharedMemory>> areas_of_peer;
};

bool is_unix(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
         address.ss_family == AF_UNIX;
}

class SocketChannel final : public Channel {
 public:
  SocketChannel(std::shared_ptr<Waiter> waiter, std::shared_ptr<Waiter> carrier, Descriptor socket,
                const Identity& peer, std::size_t max_frame_bytes)
      : shares_(is_unix(socket.get())),
        core_(std::make_shared<Core>(std::move(waiter), std::move(carrier), std::move(socket), peer,
                                     max_frame_bytes)) {
    bound_local_queue(core_->socket.get(), kLocalFrameBytes);
    core_->carrier->add(core_);
  }
  ~SocketChannel() override {
    close();
    core_->carrier->remove(core_.get());
  }

  const Identity& peer() const noexcept override { return core_->peer; }

  Work send(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    TRIREME_CHECK(head.size() <= kMostHeadBytes);
    const WorkSource source = core_->begin("channel send");
    core_->carrier->run([core = core_, head, payload, source] {
      if (core->write_failure) return core->settle(source, core->write_failure);
      core->outgoing.push_back(
          {{.head = static_cast<std::uint32_t>(head.size()), .payload = payload.size()},
           head,
           payload,
           {},
           source});
      core->poll();
    });
    return source.work();
  }

  Work receive(ChannelFrame& frame) override {
    const WorkSource source = core_->begin("channel receive");
    core_->carrier->run([core = core_, &frame, source] {
      if (core->failure) return core->settle(source, core->failure);
      core->incoming.push_back({&frame, source});
      core->poll();
    });
    return source.work();
  }

  std::optional<SharedArea> share(std::size_t bytes) override {
    if (!shares_) return std::nullopt;
    const auto created = std::make_shared<CreatedMemory>(create_memory(bytes));
    SharedArea area{.bytes = created->memory->bytes(), .owner = created};
    share(area);
    return area;
  }

  bool share(SharedArea& area) override {
    if (!shares_) return false;
    area.id = num_areas_++;
    core_->carrier->run([core = core_,
                         created = std::static_pointer_cast<CreatedMemory>(area.owner)] {
      if (core->write_failure) return;
      core->outgoing.push_back({{.area = created->memory->bytes().size()}, {}, {}, created, {}});
      core->poll();
    });
    return true;
  }

  std::span<std::byte> area_of_peer(std::uint32_t id) override {
    const std::lock_guard lock(core_->areas_mutex);
    if (id >= core_->areas_of_peer.size()) return {};
    return core_->areas_of_peer[id]->bytes();
  }

  void close() override {
    core_->carrier->run([core = core_] {
      core->fail(std::make_exception_ptr(
          PeerLost("this end of the channel was closed", {.operation = "channel"})));
    });
  }

 private:
  const bool shares_;
  const std::shared_ptr<Core> core_;
  std::uint32_t num_areas_ = 0;
};

// Handshakes go on in the progress context while somebody waits for a channel.
struct Entrance final : ProgressSource {
  Entrance(std::shared_ptr<Waiter> own_waiter, ChannelOptions own_options)
      : waiter(std::move(own_waiter)),
        options(std::move(own_options)),
        listener(options.host.empty() ? listen_unix() : listen_tcp(options.host)),
        reception(*waiter, listener, options.identity, options.secret) {
    carriers.push_back(waiter);
    for (int more = options.host.empty() ? 0 : options.carriers; more > 0; --more)
      carriers.push_back(RealWaiter::make(Duration::zero()));
  }

  bool poll() override {
    if (!source || closed) return false;
    std::exception_ptr error;
    try {
      auto caller = reception.next_now();
      if (!caller) return false;
      if (options.patience > Duration::zero()) set_patience(caller->first.get(), options.patience);
      *to =
          std::make_shared<SocketChannel>(waiter, carriers[next_carrier], std::move(caller->first),
                                          caller->second, options.max_frame_bytes);
      next_carrier = (next_carrier + 1) % carriers.size();
    } catch (const Error&) {
      error = std::current_exception();
    }
    settle(error);
    return true;
  }
  bool pending() const noexcept override { return waited_for; }
  int descriptor() const noexcept override { return epoll.get(); }
  void arm(bool) noexcept override {}

  void wait_for_one(const WorkSource& a_source, std::shared_ptr<Channel>& channel) {
    TRIREME_CHECK(!source);
    source = a_source;
    to = &channel;
    if (closed) return settle(nobody_listens());
    watch(true);
    poll();
  }
  static std::exception_ptr nobody_listens() {
    return std::make_exception_ptr(PeerLost("nobody listens any more", {.operation = "channel"}));
  }

  // Callers who come while nobody waits for them must not keep a core busy.
  void watch(bool wanted) {
    if (waited_for.exchange(wanted) == wanted) return;
    epoll.control(wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, reception.descriptor(), EPOLLIN);
  }

  void settle(const std::exception_ptr& error) {
    watch(false);
    if (const auto done = std::exchange(source, std::nullopt)) done->settle(error);
  }

  const std::shared_ptr<Waiter> waiter;
  const ChannelOptions options;
  std::vector<std::shared_ptr<Waiter>> carriers;  // which channels take in turn
  std::size_t next_carrier = 0;
  const Listener listener;
  Reception reception;
  const Epoll epoll;  // watches the reception while somebody waits for a channel
  std::atomic<bool> waited_for{false}, closed{false};
  std::optional<WorkSource> source;
  std::shared_ptr<Channel>* to = nullptr;
};

class SocketAcceptor final : public Acceptor {
 public:
  SocketAcceptor(std::shared_ptr<Waiter> waiter, ChannelOptions options)
      : entrance_(std::make_shared<Entrance>(std::move(waiter), std::move(options))) {
    entrance_->waiter->add(entrance_);
  }
  ~SocketAcceptor() override {
    entrance_->closed = true;
    entrance_->waiter->run(
        [entrance = entrance_] { entrance->settle(Entrance::nobody_listens()); });
    entrance_->waiter->remove(entrance_.get());
  }
  const std::string& address() const noexcept override { return entrance_->listener.address; }
  Work accept(std::shared_ptr<Channel>& to) override {
    const WorkSource source(entrance_->waiter, nullptr, "channel accept");
    entrance_->waiter->run(
        [entrance = entrance_, source, &to] { entrance->wait_for_one(source, to); });
    return source.work();
  }

 private:
  const std::shared_ptr<Entrance> entrance_;
};

}  // namespace

void ChannelFrame::resize(std::size_t head_bytes, std::size_t payload_bytes) {
  const auto fit = [](std::unique_ptr<std::byte[]>& memory, std::size_t& room, std::size_t bytes) {
    if (bytes <= room) return;
    memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    room = bytes;
  };
  fit(head_, head_room_, head_bytes);
  fit(payload_, payload_room_, payload_bytes);
  head_bytes_ = head_bytes;
  payload_bytes_ = payload_bytes;
}

std::shared_ptr<Channel> dial_channel(std::shared_ptr<Waiter> waiter, const std::string& address,
                                      const ChannelOptions& options) {
  const TimePoint deadline = waiter->now() + options.timeout;
  Descriptor socket = net::dial(*waiter, address, deadline);
  if (options.patience > Duration::zero()) set_patience(socket.get(), options.patience);
  const Identity peer =
      handshake(*waiter, socket.get(), true, options.identity, options.secret, deadline);
  return channel_over(std::move(waiter), std::move(socket), peer, options.max_frame_bytes);
}

std::unique_ptr<Acceptor> listen_channels(std::shared_ptr<Waiter> waiter, ChannelOptions options) {
  if (options.secret.empty() && !options.host.empty() && !is_loopback(options.host)) {
    throw ConfigError(
        "listening on " + options.host + " needs a secret",
        {.operation = "channel", .advice = "Set TRIREME_JOB_SECRET_FILE, or listen on 127.0.0.1."});
  }
  return std::make_unique<SocketAcceptor>(std::move(waiter), std::move(options));
}

std::shared_ptr<Channel> channel_over(std::shared_ptr<Waiter> waiter, Descriptor socket,
                                      const Identity& peer, std::size_t max_frame_bytes) {
  return std::make_shared<SocketChannel>(waiter, waiter, std::move(socket), peer, max_frame_bytes);
}

}  // namespace trireme::inline v0::net
