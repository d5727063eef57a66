#include <nlohmann/json.hpp>

#include "trireme/show/server/server_run.h"

namespace trireme::inline v0::show {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(ServerRun::Request::Kind kind) {
  switch (kind) {
    case ServerRun::Request::Kind::Push:
      return "push";
    case ServerRun::Request::Kind::Terms:
      return "terms";
    default:
      return "commit";
  }
}

}  // namespace

std::string json_of(const ServerRun& run) {
  std::string text;
  const auto add = [&text](const Json& line) { text += line.dump() + "\n"; };
  add({{"event", "show"},
       {"name", run.name},
       {"workers", run.workers},
       {"servers", run.servers},
       {"seconds", run.end}});
  for (const ServerRun::Step& step : run.steps)
    add({{"event", "step"},
         {"worker", step.worker},
         {"step", step.number},
         {"begin", step.begin},
         {"sent", step.sent},
         {"end", step.end},
         {"dropped", step.dropped}});
  for (const ServerRun::Request& request : run.requests) {
    Json line = {{"event", name_of(request.kind)}, {"worker", request.worker},
                 {"step", request.step},           {"server", request.server},
                 {"sent", request.sent},           {"arrived", request.arrived}};
    if (request.answered >= 0) line["answered"] = request.answered;
    add(line);
  }
  for (const ServerRun::Update& update : run.updates)
    add({{"event", "update"},
         {"server", update.server},
         {"worker", update.worker},
         {"time", update.time},
         {"version", update.version},
         {"staleness", update.staleness}});
  Json summary = {{"event", "summary"}, {"waited", waited_shares(run)}};
  summary["staleness"] = Json::object();
  for (const auto& [staleness, count] : staleness_of(run))
    summary["staleness"][std::to_string(staleness)] = count;
  summary["steps_per_second"] = Json::object();
  for (const auto& [rule, rate] : run.rates) summary["steps_per_second"][rule] = rate;
  add(summary);
  return text;
}

}  // namespace trireme::inline v0::show
