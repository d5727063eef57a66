#include "trireme/show/drawing/json.h"

#include <nlohmann/json.hpp>

#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/cost.h"

namespace trireme::inline v0::show {
namespace {

using Json = nlohmann::ordered_json;

Json round_of(const Recording& recording, int index) {
  const Step& step = recording.steps[static_cast<std::size_t>(index)];
  Json messages = Json::array();
  for (const Message& one : step.messages) {
    messages.push_back({{"from", one.from},
                        {"to", one.to},
                        {"chunk", one.chunk},
                        {"parts", one.parts},
                        {"bytes", one.bytes},
                        {"copy", one.copy},
                        {"read", one.read}});
  }
  return {{"event", "round"},
          {"round", index},
          {"held", step.cells},
          {"messages", std::move(messages)},
          {"added_bytes", step.added}};
}

}  // namespace

std::string json_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  const Json head = {{"event", "show"},
                     {"collective", title_of(recording.kind)},
                     {"algorithm", recording.algorithm},
                     {"ranks", recording.ranks},
                     {"root", recording.root},
                     {"host_of_rank", recording.host_of_rank},
                     {"chunks", recording.num_chunks},
                     {"buffer_bytes", recording.buffer_bytes}};
  std::string text = head.dump() + "\n";
  for (int step = 0; step <= recording.rounds(); ++step) {
    text += round_of(recording, step).dump() + "\n";
  }
  const plan::CostShape shape = shape_of(recording);
  const Json cost = {{"event", "cost"},
                     {"rounds", recording.rounds()},
                     {"sent_bytes", recording.sent()},
                     {"faults", recording.faults()},
                     {"messages", shape.messages},
                     {"sent", shape.sent},
                     {"added", shape.added},
                     {"alpha", link.alpha},
                     {"beta", link.beta},
                     {"gamma", link.gamma},
                     {"bytes", bytes},
                     {"seconds", shape.seconds(link, static_cast<double>(bytes))}};
  return text + cost.dump() + "\n";
}

}  // namespace trireme::inline v0::show
