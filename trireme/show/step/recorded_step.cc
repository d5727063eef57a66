#include "trireme/show/step/recorded_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

constexpr std::size_t kLine = 100;  // characters

std::string milliseconds(double seconds) { return fixed(1e3 * seconds, 2); }

// "bucket 0 4.00-4.60 (74 kB)"; a span without length shows only its begin.
std::string span_text(const StepSpan& span) {
  std::string text = span.name + " " + milliseconds(span.begin);
  if (span.end > span.begin) text += "-" + milliseconds(span.end);
  if (span.bytes > 0) text += " (" + fixed(static_cast<double>(span.bytes) / 1e3, 1) + " kB)";
  return text;
}

// `label`, then the spans, in as many lines as needed.
std::string lane_text(const std::string& label, const StepLane& lane) {
  std::string text, line = label;
  for (const StepSpan& span : lane.spans) {
    const std::string one = span_text(span);
    if (line.size() + one.size() + 2 > kLine && line.size() > label.size()) {
      text += line + "\n";
      line = std::string(label.size(), ' ');
    }
    line += (line.size() > label.size() ? ", " : "") + one;
  }
  return text + line + "\n";
}

std::string timeline_text(const StepTimeline& timeline) {
  std::size_t width = 0;
  for (const auto& lanes : timeline.ranks)
    for (const StepLane& lane : lanes) width = std::max(width, lane.name.size());
  std::string text = timeline.about + " (ms)\n";
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string label = "rank " + std::to_string(rank) + "  ";
    for (const StepLane& lane : timeline.ranks[rank]) {
      text += lane_text(label + padded(lane.name, width) + "  ", lane);
      label.assign(label.size(), ' ');
    }
  }
  return text;
}

std::string table_text(const StepTable& table) {
  std::size_t first = 0, width = 0;
  for (const std::string& column : table.columns) width = std::max(width, column.size());
  for (const auto& [label, cells] : table.rows) {
    first = std::max(first, label.size());
    for (const StepTable::Cell& cell : cells) width = std::max(width, cell.text.size());
  }
  std::string head = std::string(first + 2, ' ');
  for (const std::string& column : table.columns) head += padded(column, width + 2);
  std::string text = table.title + "\n" + line_of(head);
  for (const auto& [label, cells] : table.rows) {
    std::string row = padded(label, first + 2);
    for (const StepTable::Cell& cell : cells)
      row += padded(cell.text.empty() ? "." : cell.text, width + 2);
    text += line_of(row);
  }
  return text;
}

}  // namespace

double StepTimeline::end() const {
  double last = 0;
  for (const auto& lanes : ranks)
    for (const StepLane& lane : lanes)
      for (const StepSpan& span : lane.spans) last = std::max(last, span.end);
  return last;
}

std::vector<double> moments(const RecordedStep& step) {
  std::set<double> times;
  for (const StepTimeline& timeline : step.timelines) {
    times.insert(timeline.end());
    for (const auto& lanes : timeline.ranks)
      for (const StepLane& lane : lanes)
        for (const StepSpan& span : lane.spans) times.insert(span.begin);
  }
  return {times.begin(), times.end()};
}

std::string moment_text(const StepTimeline& timeline, double time) {
  std::string text = milliseconds(time) + " ms: ";
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string now;
    for (const StepLane& lane : timeline.ranks[rank])
      for (const StepSpan& span : lane.spans)
        if (span.begin <= time && (time < span.end || time == span.begin))
          now += (now.empty() ? "" : ", ") + span.name;
    text += (rank > 0 ? "; rank " : "rank ") + std::to_string(rank) + " " +
            (now.empty() ? "nothing" : now);
  }
  return text;
}

std::string text_of(const RecordedStep& step) {
  std::string text = step.name + "\n" + step.about + "\n";
  for (const StepTable& table : step.tables) text += "\n" + table_text(table);
  for (const StepTimeline& timeline : step.timelines) text += "\n" + timeline_text(timeline);
  if (!step.notes.empty()) text += "\n";
  for (const std::string& note : step.notes) text += note + "\n";
  return text;
}

std::string json_of(const RecordedStep& step) {
  std::string text = json_line({{"event", "show"}, {"name", step.name}, {"ranks", step.ranks}});
  for (const StepTable& table : step.tables) {
    auto rows = nlohmann::ordered_json::object();
    for (const auto& [label, cells] : table.rows)
      for (const StepTable::Cell& cell : cells) rows[label].push_back(cell.text);
    text += json_line({{"event", "table"},
                       {"title", table.title},
                       {"columns", table.columns},
                       {"rows", std::move(rows)}});
  }
  for (const StepTimeline& timeline : step.timelines) {
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      for (const StepLane& lane : timeline.ranks[rank]) {
        for (const StepSpan& span : lane.spans)
          text += json_line({{"event", "span"},
                             {"timeline", timeline.about},
                             {"rank", rank},
                             {"lane", lane.name},
                             {"name", span.name},
                             {"begin", span.begin},
                             {"end", span.end},
                             {"bytes", span.bytes}});
      }
    }
  }
  return text;
}

}  // namespace trireme::inline v0::show
