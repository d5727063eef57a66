#include "trireme/net/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/shortened.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {
namespace {

struct Bits {
  std::array<unsigned char, 16> bytes{};
  int count = 0;  // 32 or 128; 0: not an address
};

Bits bits_of(const std::string& address) {
  Bits bits;
  if (inet_pton(AF_INET, address.c_str(), bits.bytes.data()) == 1) {
    bits.count = 32;
  } else if (inet_pton(AF_INET6, address.c_str(), bits.bytes.data()) == 1) {
    bits.count = 128;
  }
  return bits;
}

bool is_ipv6(const InterfaceAddress& one) { return bits_of(one.address).count == 128; }

struct Subnet {
  Bits base;
  int length = 0;
  bool holds(const std::string& address) const {
    const Bits bits = bits_of(address);
    if (bits.count != base.count) return false;
    for (int bit = 0; bit < length; ++bit) {
      const auto at = static_cast<std::size_t>(bit / 8);
      const int mask = 0x80 >> bit % 8;
      if ((bits.bytes[at] & mask) != (base.bytes[at] & mask)) return false;
    }
    return true;
  }
};

std::optional<Subnet> parse_subnet(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return std::nullopt;
  const Bits base = bits_of(text.substr(0, slash));
  const auto length = parse_number<int>(std::string_view(text).substr(slash + 1));
  if (!length || base.count == 0 || *length < 0 || *length > base.count) {
    throw ConfigError("'" + text + "' is no subnet",
                      {.operation = "config",
                       .label = "comm.interface",
                       .advice = "For example: 10.0.0.0/8, fd00::/8, or an interface's name."});
  }
  return Subnet{base, *length};
}

std::string listed(const std::vector<InterfaceAddress>& all) {
  if (all.empty()) return "none";
  return joined(all, [](const InterfaceAddress& one) { return one.name + " " + one.address; });
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
  }
  return text;
}

}  // namespace

std::vector<InterfaceAddress> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_system_error("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const std::string address = text_of(one->ifa_addr);
    if (!address.empty()) all.push_back({one->ifa_name, address});
  }
  return all;
}

std::string choose_address(const std::vector<InterfaceAddress>& all, const std::string& choice,
                           bool ipv6) {
  const auto subnet = parse_subnet(choice);
  const InterfaceAddress* chosen = nullptr;
  for (const auto& one : all) {
    if (subnet ? !subnet->holds(one.address) : one.name != choice) continue;
    if (!chosen || (is_ipv6(*chosen) != ipv6 && is_ipv6(one) == ipv6)) chosen = &one;
  }
  if (chosen) return chosen->address;
  throw ConfigError("no interface here that has an address is " + std::string(subnet ? "in " : "") +
                        shortened(choice) + "; there are: " + listed(all),
                    {.operation = "config",
                     .label = "comm.interface",
                     .advice = "Give comm.interface (TRIREME_COMM_INTERFACE) the name of one of "
                               "them, or a subnet such as 10.0.0.0/8."});
}

}  // namespace trireme::inline v0::net
