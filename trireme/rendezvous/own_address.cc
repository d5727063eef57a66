#include "trireme/rendezvous/own_address.h"

#include <sys/socket.h>

#include <memory>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/interfaces.h"
#include "trireme/net/socket.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kBeyond = "192.0.2.1:9";  // no host's address; only its route matters
// For a name server that is away for a moment.
constexpr Duration kLookUpFor = std::chrono::seconds(5);
constexpr Duration kLookUpPause = std::chrono::milliseconds(100);

struct Route {
  int error = 0;                    // getaddrinfo()'s
  std::string address = kLoopback;  // of this host
};

Route route_to(const net::Endpoint& there, const LookUp& look_up) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error =
          look_up(there.host.c_str(), std::to_string(there.port).c_str(), &hints, &found);
      error != 0)
    return {.error = error};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST];
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), address, &size) != 0 ||
      getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return {.address = text};
}

// The same, again while the name server asks to try again.
Route patient_route_to(const net::Endpoint& there, const LookUp& look_up) {
  Route route = route_to(there, look_up);
  if (route.error != EAI_AGAIN) return route;
  const std::shared_ptr<Waiter> waiter = RealWaiter::make(Duration::zero());
  for (const TimePoint end = waiter->now() + kLookUpFor;
       route.error == EAI_AGAIN && waiter->now() < end; route = route_to(there, look_up))
    waiter->sleep(kLookUpPause);
  return route;
}

}  // namespace

std::string own_address(const std::string& coordinator, const std::string& interface,
                        const Getenv& get, const LookUp& look_up) {
  if (const auto given = get("TRIREME_ADDRESS"); given && !given->empty()) return *given;
  const net::Endpoint there = net::parse_endpoint(coordinator).value_or(net::Endpoint{"", 1});
  const bool ipv6 = there.host.find(':') != there.host.npos;
  if (!interface.empty()) return net::choose_address(net::interfaces(), interface, ipv6);
  const Route route = patient_route_to(there, look_up);
  if (route.error != 0)
    observe::warning("the coordinator's host " + there.host + " is not known (" +
                     gai_strerror(route.error) + "), so other processes reach this one at " +
                     kLoopback + ", on this host alone; TRIREME_ADDRESS names another address");
  return route.address;
}

std::string address_for_others(const std::string& host, const std::string& interface,
                               const Getenv& get) {
  const auto given = get("TRIREME_ADDRESS");
  if (!interface.empty() || (given && !given->empty())) return own_address(kBeyond, interface, get);
  std::vector<net::Endpoint> there{net::parse_endpoint(kBeyond).value()};
  if (!host.empty()) there.insert(there.begin(), {net::without_brackets(host), 9});
  for (const net::Endpoint& one : there) {
    const std::string address = route_to(one, getaddrinfo).address;
    if (!net::is_loopback(address)) return address;
  }
  for (const net::InterfaceAddress& one : net::interfaces()) {
    if (!net::is_loopback(one.address)) return one.address;
  }
  return kLoopback;
}

}  // namespace trireme::inline v0::rendezvous
