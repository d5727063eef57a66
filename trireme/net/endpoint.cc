#include "trireme/net/endpoint.h"

#include <arpa/inet.h>

#include "trireme/base/parse_number.h"

namespace trireme::inline v0::net {

std::string without_brackets(const std::string& host) {
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return in_brackets ? host.substr(1, host.size() - 2) : host;
}

std::string to_string(const Endpoint& endpoint) {
  const std::string host = without_brackets(endpoint.host);
  const bool v6 = host.find(':') != host.npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(endpoint.port);
}

std::optional<Endpoint> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return std::nullopt;
  const std::string host = text.substr(0, colon);
  const bool v6 = host.find(':') != host.npos;
  if (v6 != (without_brackets(host) != host)) return std::nullopt;
  const auto port = parse_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (!port || *port == 0) return std::nullopt;
  return Endpoint{without_brackets(host), *port};
}

// Only addresses count: a host name such as "127.example.com" may be anywhere.
bool is_loopback(const std::string& host) {
  const std::string plain = without_brackets(host);
  in_addr v4{};
  if (inet_pton(AF_INET, plain.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return plain == "::1" || plain == "localhost";
}

}  // namespace trireme::inline v0::net
