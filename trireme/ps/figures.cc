#include "trireme/ps/figures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {

ServerFigures ServerFigures::from_text(std::string_view text) {
  ServerFigures all;
  try {
    for (const nlohmann::json& server : nlohmann::json::parse(text)) {
      const std::int64_t version = server.at("version");
      all.updates = all.servers == 0 ? version : std::min(all.updates, version);
      ++all.servers;
      for (const auto& [number, worker] : server.at("workers").items()) {
        const auto at = static_cast<std::size_t>(std::stoul(number));
        if (at >= all.pushes.size()) all.pushes.resize(at + 1, 0);
        all.pushes[at] += worker.at("pushes").get<std::int64_t>();
        all.dropped += worker.at("dropped").get<std::int64_t>();
        all.late += worker.at("late").get<std::int64_t>();
        all.repeated += worker.at("repeated").get<std::int64_t>();
      }
      for (const auto& [staleness, count] : server.at("staleness").items())
        all.staleness[std::stoll(staleness)] += count.get<std::int64_t>();
    }
    return all;
  } catch (const std::exception&) {  // of the parser, or of a number
    throw MismatchError("the figures that a parameter server sent cannot be read",
                        {.operation = "parameter server",
                         .advice = "Run the same version of Trireme in all processes."});
  }
}

}  // namespace trireme::inline v0::ps
