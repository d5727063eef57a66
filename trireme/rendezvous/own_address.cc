#include "trireme/rendezvous/own_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "trireme/net/endpoint.h"
#include "trireme/net/interfaces.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::rendezvous {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kBeyond = "192.0.2.1:9";  // no host's address; only its route matters

std::string own_address(const std::string& coordinator, const std::string& interface,
                        const rendezvous::Getenv& get) {
  if (const auto given = get("TRIREME_ADDRESS"); given && !given->empty()) return *given;
  const net::Endpoint there = net::parse_endpoint(coordinator).value_or(net::Endpoint{"", 1});
  const bool ipv6 = there.host.find(':') != there.host.npos;
  if (!interface.empty()) return net::choose_address(net::interfaces(), interface, ipv6);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(there.host.c_str(), std::to_string(there.port).c_str(), &hints, &found) != 0)
    return kLoopback;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST];
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), address, &size) != 0 ||
      getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return kLoopback;
  }
  return text;
}

std::string address_for_others(const std::string& host, const std::string& interface,
                               const rendezvous::Getenv& get) {
  const auto given = get("TRIREME_ADDRESS");
  if (!interface.empty() || (given && !given->empty())) return own_address(kBeyond, interface, get);
  std::vector<std::string> there{kBeyond};
  if (!host.empty()) there.insert(there.begin(), net::to_string({host, 9}));
  for (const std::string& one : there) {
    const std::string address = own_address(one, {}, get);
    if (!net::is_loopback(address)) return address;
  }
  for (const net::InterfaceAddress& one : net::interfaces()) {
    if (!net::is_loopback(one.address)) return one.address;
  }
  return kLoopback;
}

}  // namespace trireme::inline v0::rendezvous
