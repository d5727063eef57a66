#include "trireme/ps/messages.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::inline v0 {
namespace kernel {

void to_json(nlohmann::json& json, const LeafRange& range) { json = {range.first, range.count}; }
void from_json(const nlohmann::json& json, LeafRange& range) {
  range = {json.at(0).get<std::uint32_t>(), json.at(1).get<std::uint32_t>()};
}

}  // namespace kernel

namespace ps {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Memory, area, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Request, ask, worker, sequence, clock, version, rate, scale,
                                   round, total, nodes, memory, into, text_bytes, rows, with_rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Reply, ask, exit_code, text, version, sequence, round, slowest,
                                   ready, staleness, dropped, not_finite, memory, text_bytes)

namespace {

template <class Message>
Message parse(std::span<const std::byte> head) {
  const auto* begin = reinterpret_cast<const char*>(head.data());
  try {
    auto message = nlohmann::json::parse(begin, begin + head.size()).template get<Message>();
    if (message.ask <= Ask::PullRows) return message;
  } catch (const nlohmann::json::exception&) {
  }
  throw RefusedError(ExitCode::Refused, "a parameter server got a message that it does not know",
                     {.operation = "parameter server",
                      .advice = "Run the same version of Trireme in all processes."});
}

}  // namespace

std::string to_text(const Request& request) { return nlohmann::json(request).dump(); }
std::string to_text(const Reply& reply) { return nlohmann::json(reply).dump(); }
Request request_from(std::span<const std::byte> head) { return parse<Request>(head); }
Reply reply_from(std::span<const std::byte> head) { return parse<Reply>(head); }

}  // namespace ps
}  // namespace trireme::inline v0
