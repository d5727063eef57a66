#include "trireme/ps/messages.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/ps/copies/relay.h"

namespace trireme::inline v0 {
namespace kernel {

void to_json(nlohmann::json& json, const LeafRange& range) { json = {range.first, range.count}; }
void from_json(const nlohmann::json& json, LeafRange& range) {
  range = {json.at(0).get<std::uint32_t>(), json.at(1).get<std::uint32_t>()};
}

}  // namespace kernel

namespace ps {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Memory, area, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Request, ask, shard, worker, sequence, clock, version, epoch,
                                   attempt, kept, rate, scale, finite, round, total, nodes, memory,
                                   into, text_bytes, rows, with_rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Reply, ask, exit_code, text, advice, elsewhere, version,
                                   sequence, round, slowest, ready, staleness, dropped, not_finite,
                                   memory, text_bytes, in_place)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Position, term, index)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Relay, kind, shard, term, at, client, request, text_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Heard, at, term, refused)

namespace {

// Heads of relays begin with a letter, which no JSON object does.
constexpr char kRelay = 'R';

[[noreturn]] void refuse_message() {
  throw RefusedError(ExitCode::Refused, "a parameter server got a message that it does not know",
                     {.operation = "parameter server",
                      .advice = "Run the same version of Trireme in all processes."});
}

template <class Message>
Message parse(std::span<const std::byte> head, bool (*known)(const Message&)) {
  const auto* begin = reinterpret_cast<const char*>(head.data());
  try {
    auto message = nlohmann::json::parse(begin, begin + head.size()).template get<Message>();
    if (known(message)) return message;
  } catch (const nlohmann::json::exception&) {
  }
  refuse_message();
}

}  // namespace

std::string to_text(const Request& request) { return nlohmann::json(request).dump(); }
std::string to_text(const Reply& reply) { return nlohmann::json(reply).dump(); }
std::string to_text(const Relay& relay) { return kRelay + nlohmann::json(relay).dump(); }
std::string to_text(const Heard& heard) { return nlohmann::json(heard).dump(); }

Request request_from(std::span<const std::byte> head) {
  return parse<Request>(head, [](const Request& one) { return one.ask <= kLastAsk; });
}
Reply reply_from(std::span<const std::byte> head) {
  return parse<Reply>(head, [](const Reply& one) { return one.ask <= kLastAsk; });
}
bool is_relay(std::span<const std::byte> head) noexcept {
  return !head.empty() && static_cast<char>(head.front()) == kRelay;
}
Relay relay_from(std::span<const std::byte> head) {
  if (!is_relay(head)) refuse_message();
  return parse<Relay>(head.subspan(1), [](const Relay& one) {
    return one.kind <= Relay::Kind::Lost && one.request.ask <= kLastAsk;
  });
}
Heard heard_from(std::span<const std::byte> head) {
  return parse<Heard>(head, [](const Heard&) { return true; });
}

}  // namespace ps
}  // namespace trireme::inline v0
