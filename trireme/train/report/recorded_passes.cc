#include "trireme/train/report/recorded_passes.h"

#include <cctype>
#include <nlohmann/json.hpp>

namespace trireme::inline v0::train {
namespace {

// "F0.1", "B2.0", "I0.0", "W0.0", "F0.4+B7.1".
bool is_pass(const std::string& name) {
  return name.size() >= 4 && std::string("FBIW").find(name[0]) != std::string::npos &&
         std::isdigit(static_cast<unsigned char>(name[1])) != 0 &&
         name.find('.') != std::string::npos;
}

const observe::TraceSpan* last_step(const observe::RankTrace& trace) {
  const observe::TraceSpan* last = nullptr;
  for (const observe::TraceSpan& span : trace.spans)
    if (trace.names[span.name] == "step" && (last == nullptr || span.begin > last->begin))
      last = &span;
  return last;
}

}  // namespace

std::string recorded_passes(std::span<const observe::RankTrace> traces, int stage_ranks) {
  std::string lines;
  for (const observe::RankTrace& trace : traces) {
    if (trace.rank % stage_ranks != 0) continue;
    const observe::TraceSpan* step = last_step(trace);
    if (step == nullptr) continue;
    const auto seconds = [&](std::int64_t at) {
      return static_cast<double>(at + trace.clock_offset) * 1e-9;
    };
    for (const observe::TraceSpan& span : trace.spans) {
      const std::string& name = trace.names[span.name];
      if (!is_pass(name) || span.begin < step->begin || span.end > step->end) continue;
      lines += nlohmann::json{{"event", "pass"},
                              {"rank", trace.rank / stage_ranks},
                              {"pass", name},
                              {"begin", seconds(span.begin)},
                              {"end", seconds(span.end)}}
                   .dump() +
               "\n";
    }
  }
  return lines;
}

}  // namespace trireme::inline v0::train
