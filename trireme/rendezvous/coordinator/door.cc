#include "trireme/rendezvous/coordinator/door.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/handshake.h"
#include "trireme/observe/wait_notice.h"

namespace trireme::inline v0::rendezvous {
namespace {

// Compares only the kind of connection; the rank joins after the handshake.
constexpr net::Identity kIdentity{.purpose = 0x636f6f72};  // "coor"
constexpr Duration kAgain = std::chrono::milliseconds(20);
// For the system to connect to one address. A host may have another one, and its name may get
// another one; some networks drop what is sent to an address that nobody has.
constexpr Duration kConnect = std::chrono::seconds(5);
constexpr Duration kNameAgain = std::chrono::seconds(1);  // while the host's name is not known
// A network may be interrupted for a while; heartbeats decide whether a rank is lost.
constexpr Duration kPatience = std::chrono::minutes(15);

// The host's addresses in numbers; none if its name is not known (yet).
std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error == EAI_NONAME) {
    hints.ai_flags = 0;
    error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  }
  if (error == EAI_MEMORY) throw std::bad_alloc();
  if (error != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0)
      addresses.emplace_back(text);
  }
  return addresses;
}

// nullopt if nobody listens there, or the listener closes the connection.
std::optional<Descriptor> try_address(Waiter& waiter, const std::string& address,
                                      std::uint16_t port, const std::string& secret,
                                      TimePoint deadline) {
  Descriptor socket;
  try {
    socket = net::dial(waiter, "tcp " + net::to_string({address, port}),
                       std::min(deadline, waiter.now() + kConnect));
  } catch (const PeerLost&) {
    return std::nullopt;
  } catch (const TimeoutError&) {
    return std::nullopt;
  }
  try {
    net::handshake(waiter, socket.get(), true, kIdentity, secret, deadline);
    return socket;
  } catch (const PeerLost&) {
    return std::nullopt;
  }
}

}  // namespace

net::Listener listen(const std::string& address, std::uint16_t port) {
  try {
    return net::listen_tcp(net::without_brackets(address), port);
  } catch (const ResourceError& error) {
    const std::string where = port == 0 ? address : net::to_string({address, port});
    throw ResourceError("could not listen on " + where + ": " + error.message(),
                        {.operation = "launch",
                         .advice = port == 0 ? "See whether the address is this host's."
                                             : "See whether the address is this host's and the "
                                               "port is free."});
  }
}

Door::Door(std::shared_ptr<net::Listener> listener, std::string secret)
    : waiter_(RealWaiter::make(Duration::zero())),
      listener_(std::move(listener)),
      endpoint_(listener_->address.substr(listener_->address.find(' ') + 1)),
      reception_(*waiter_, *listener_, kIdentity, std::move(secret)) {}

Door::~Door() { close(); }

void Door::open(std::function<void(Descriptor)> on_guest) {
  thread_ = std::thread([this, on_guest = std::move(on_guest)] { let_in(on_guest); });
}

// shutdown() on a listening socket refuses new callers and wakes the thread that waits for one.
void Door::close() noexcept {
  closing_ = true;
  closed_.set();
  shutdown(listener_->socket.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

void Door::let_in(const std::function<void(Descriptor)>& on_guest) {
  while (!closing_) {
    try {
      Descriptor guest = reception_.next(TimePoint::max(), "a rank").first;
      net::set_patience(guest.get(), kPatience);
      on_guest(std::move(guest));
    } catch (const Error&) {  // no descriptor is left, or close() was called
      closed_.wait(kAgain);
    }
  }
}

std::optional<std::uint16_t> find_coordinator(const std::string& host,
                                              const std::vector<std::uint16_t>& ports,
                                              const std::string& secret) {
  const auto waiter = RealWaiter::make(Duration::zero());
  const std::vector<std::string> addresses = addresses_of(host);
  for (const std::uint16_t port : ports) {
    for (const std::string& address : addresses) {
      try {
        if (try_address(*waiter, address, port, secret, waiter->now() + std::chrono::seconds(1)))
          return port;
      } catch (const Error&) {  // something else listens there
      }
    }
  }
  return std::nullopt;
}

bool is_coordinator(const std::string& endpoint, const std::string& secret) {
  const auto there = net::parse_endpoint(endpoint);  // enter() says what is wrong with it
  return there && find_coordinator(there->host, {there->port}, secret);
}

Descriptor enter(const std::string& endpoint, const std::string& secret, Duration timeout,
                 const std::string& who) {
  const auto waiter = RealWaiter::make(Duration::zero());
  return enter(*waiter, endpoint, secret, timeout, who);
}

Descriptor enter(Waiter& waiter, const std::string& endpoint, const std::string& secret,
                 Duration timeout, const std::string& who) {
  const auto there = net::parse_endpoint(endpoint);
  if (!there) {
    throw ConfigError("'" + endpoint + "' is no coordinator's address",
                      {.operation = "join",
                       .label = "TRIREME_COORDINATOR",
                       .advice = "Start ranks by `trireme launch`."});
  }
  const observe::WaitNotice notice(waiter, who, [&] { return "the coordinator at " + endpoint; });
  const TimePoint deadline = waiter.now() + timeout;
  try {
    for (Duration pause = kAgain;;) {
      const std::vector<std::string> addresses = addresses_of(there->host);
      for (const std::string& address : addresses) {
        if (auto socket = try_address(waiter, address, there->port, secret, deadline)) {
          net::set_patience(socket->get(), kPatience);
          return std::move(*socket);
        }
      }
      const Duration rest = deadline - waiter.now();
      if (rest <= Duration::zero()) break;
      waiter.sleep(std::min(pause, rest));
      pause = addresses.empty() ? std::min(2 * pause, kNameAgain) : kAgain;
    }
  } catch (const TimeoutError&) {  // reported below
  }
  throw TimeoutError("the coordinator at " + endpoint + " did not answer in time",
                     {.operation = "join",
                      .advice = "See whether the launcher, or `trireme coordinator`, still runs."});
}

}  // namespace trireme::inline v0::rendezvous
