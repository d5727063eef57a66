// A recording as text and as JSON.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "trireme/base/words.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/cost.h"
#include "trireme/show/drawing/picture.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

std::size_t cell_width(const Recording& recording) {
  std::size_t width =
      std::string("chunk ").size() + std::to_string(recording.num_chunks - 1).size();
  for (const Step& step : recording.steps)
    for (const auto& row : step.cells)
      for (const Cell& cell : row) width = std::max(width, text_of(cell).size());
  return width + 3;
}

bool holds_terms_apart(const Recording& recording) {
  for (const Step& step : recording.steps)
    for (const auto& row : step.cells)
      if (std::ranges::any_of(row, [](const Cell& cell) { return cell.size() > 1; })) return true;
  return false;
}

std::string round_line(const Recording& recording, int index) {
  const Step& step = recording.steps[static_cast<std::size_t>(index)];
  auto messages = nlohmann::ordered_json::array();
  for (const Message& one : step.messages) {
    messages.push_back({{"from", one.from},
                        {"to", one.to},
                        {"chunk", one.chunk},
                        {"parts", one.parts},
                        {"bytes", one.bytes},
                        {"copy", one.copy},
                        {"read", one.read}});
  }
  return json_line({{"event", "round"},
                    {"round", index},
                    {"held", step.cells},
                    {"messages", std::move(messages)},
                    {"added_bytes", step.added}});
}

}  // namespace

std::string sends_text(const Step& step, int rank) {
  std::map<std::set<int>, std::set<int>> chunks_of;  // receivers: chunks
  std::map<int, std::set<int>> receivers_of;         // chunk: receivers
  for (const Message& one : step.messages)
    if (one.from == rank) receivers_of[one.chunk].insert(one.to);
  for (const auto& [chunk, receivers] : receivers_of) chunks_of[receivers].insert(chunk);
  std::string text;
  for (const auto& [receivers, chunks] : chunks_of) {
    text += text.empty() ? "" : "; ";
    text += (chunks.size() > 1 ? "chunks " : "chunk ") + listed(chunks) +
            (receivers.size() > 1 ? " to ranks " : " to rank ") + listed(receivers);
  }
  return text;
}

std::string name_of(const Recording& recording) {
  std::string text = title_of(recording.kind) + " " + recording.algorithm + ", " +
                     std::to_string(recording.ranks) + " ranks";
  if (recording.host_of_rank.back() > 0)
    text += " on " + std::to_string(recording.host_of_rank.back() + 1) + " hosts";
  return text;
}

std::string heading(const Recording& recording) {
  return name_of(recording) + (recording.about.empty() ? "" : ": " + recording.about) + "\n";
}

std::string rank_label(const Recording& recording, int rank) {
  std::string label = "rank " + std::to_string(rank);
  if (recording.host_of_rank.back() > 0)
    label += ", host " + std::to_string(recording.host_of_rank[static_cast<std::size_t>(rank)]);
  return label;
}

std::string step_title(const Recording& recording, int step) {
  if (step == 0) return "before";
  return "round " + std::to_string(step) + " of " + std::to_string(recording.rounds());
}

std::string table(const Recording& recording, int index) {
  const Step& step = recording.steps[static_cast<std::size_t>(index)];
  const std::size_t width = cell_width(recording);
  const std::size_t first = recording.host_of_rank.back() > 0 ? 18 : 9;
  std::string text = padded("", first);
  for (int chunk = 0; chunk < recording.num_chunks; ++chunk)
    text += padded("chunk " + std::to_string(chunk), width);
  text = step_title(recording, index) + "\n" + line_of(text + (index > 0 ? "sends" : ""));
  for (int rank = 0; rank < recording.ranks; ++rank) {
    std::string line = padded(rank_label(recording, rank), first);
    for (const Cell& cell : step.cells[static_cast<std::size_t>(rank)])
      line += padded(cell.empty() ? "." : text_of(cell), width);
    text += line_of(line + sends_text(step, rank));
  }
  return text;
}

std::string sent_text(const Recording& recording) {
  const auto sent = recording.sent();
  const auto [least, most] = std::ranges::minmax_element(sent);
  const std::size_t all = std::accumulate(sent.begin(), sent.end(), std::size_t{0});
  std::string text = "each rank sent " + grouped(*most) + " B, ";
  if (*least != *most) text = "a rank sent " + grouped(*least) + " to " + grouped(*most) + " B, ";
  return text + grouped(all) + " B in all";
}

std::string footer(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  if (is_direct(recording.kind, recording.algorithm)) {
    return "recorded  " + std::to_string(recording.rounds()) + " rounds; each rank read " +
           grouped(recording.read().front()) + " B of the others' memory and wrote " +
           grouped(recording.sent().front()) + " B to it; S = " + grouped(recording.buffer_bytes) +
           " B\nformula   no messages; (n-1)/n S read and (n-1)/n S written a rank\n";
  }
  const plan::CostShape shape = shape_of(recording);
  const auto sent = recording.sent();
  const auto buffers = [&](double of) {
    return fixed(of / static_cast<double>(recording.buffer_bytes), 2);
  };
  const double all = std::accumulate(sent.begin(), sent.end(), 0.0);
  const double most = static_cast<double>(*std::ranges::max_element(sent));
  std::string text;
  text += "recorded  " + counted(recording.rounds(), "round") + "; " + sent_text(recording) +
          "; S = " + grouped(recording.buffer_bytes) + " B, so " + buffers(most) + " S and " +
          buffers(all) + " S\n";
  text += "formula   " + formula_of(shape) + "\n";
  text += "time      " + duration_text(shape.seconds(link, static_cast<double>(bytes))) +
          " for S = " + size_text(bytes) +
          " where a message costs α = " + duration_text(link.alpha) +
          ", the link carries 1/β = " + rate_text(link.beta) +
          ", a rank adds 1/γ = " + rate_text(link.gamma) + "\n";
  if (holds_terms_apart(recording)) {
    text +=
        "0, 2      two terms that are not added yet: only siblings of the tree sum are "
        "(docs/concepts.md)\n";
  }
  for (const std::string& fault : recording.faults()) text += "wrong     " + fault + "\n";
  return text;
}

std::string text_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  std::string text = heading(recording) + "\n";
  for (int step = 0; step <= recording.rounds(); ++step) text += table(recording, step) + "\n";
  return text + footer(recording, link, bytes);
}

std::string json_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  std::string text = json_line({{"event", "show"},
                                {"collective", title_of(recording.kind)},
                                {"algorithm", recording.algorithm},
                                {"ranks", recording.ranks},
                                {"root", recording.root},
                                {"host_of_rank", recording.host_of_rank},
                                {"chunks", recording.num_chunks},
                                {"buffer_bytes", recording.buffer_bytes}});
  for (int step = 0; step <= recording.rounds(); ++step) text += round_line(recording, step);
  const plan::CostShape shape = shape_of(recording);
  return text + json_line({{"event", "cost"},
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
                           {"seconds", shape.seconds(link, static_cast<double>(bytes))}});
}

}  // namespace trireme::inline v0::show
