// Draws the tables and timelines of a recorded step.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/drawing/words.h"
#include "trireme/show/step/recorded_step.h"

namespace trireme::inline v0::show {
namespace {

using Kind = StepSpan::Kind;

constexpr double kSize = 10.5, kBox = 22, kLane = 26, kRankGap = 12;
constexpr double kWidest = 1200, kNarrowest = 620;  // of the time axis
constexpr double kCell = 24, kTableHead = 46;

struct Look {
  Kind kind;
  const char *colour, *what;
};
constexpr std::array<Look, 4> kLooks = {
    {{Kind::Forward, "#9ecae1", "F forward pass of a block"},
     {Kind::Backward, "#a1d99b", "B backward pass"},
     {Kind::Transfer, "#fdd0a2", "communication, from the call to its end"},
     {Kind::Update, "#dadaeb", "update of weights"}}};

template <class See>
void each_span(const RecordedStep& step, See see) {
  for (const StepTimeline& timeline : step.timelines)
    for (const auto& lanes : timeline.ranks)
      for (const StepLane& lane : lanes)
        for (const StepSpan& span : lane.spans) see(span);
}

bool has(const RecordedStep& step, Kind kind) {
  bool found = false;
  each_span(step, [&](const StepSpan& span) { found = found || span.kind == kind; });
  return found;
}

class Picture {
 public:
  Picture(const RecordedStep& step, Moments moments) : step_(step), moments_(std::move(moments)) {
    double end = 1e-9, wanted = 0;
    for (const StepTimeline& timeline : step.timelines) end = std::max(end, timeline.end());
    each_span(step, [&](const StepSpan& span) {
      if (span.end > span.begin)
        wanted = std::max(wanted, (text_width(span.name, kSize) + 6) / (span.end - span.begin));
    });
    scale_ = std::clamp(wanted, kNarrowest / end, kWidest / end);
    width_ = end * scale_;
    for (const StepTimeline& timeline : step.timelines)
      for (const auto& lanes : timeline.ranks)
        for (const StepLane& lane : lanes)
          label_ = std::max(label_, text_width("rank 00  " + lane.name, 11) + 16);
  }

  std::vector<LegendEntry> legend() const {
    std::vector<LegendEntry> entries;
    for (const Look& look : kLooks)
      if (has(step_, look.kind))
        entries.push_back(
            {.style = {.stroke = "#888888", .width = 0.6, .fill = look.colour}, .text = look.what});
    if (!step_.tables.empty())
      entries.push_back({.sample = LegendEntry::Sample::None,
                         .text = "a cell's frame has the colour of the rank that it is about"});
    return entries;
  }
  double width() const {
    double wide = step_.timelines.empty() ? 0 : label_ + width_ + 4;
    for (const StepTable& table : step_.tables)
      wide = std::max({wide, table_width(table), text_width(table.title, 12) * 1.1});
    for (const StepTimeline& timeline : step_.timelines)
      wide = std::max(wide, text_width(timeline.about, 12) * 1.1);
    return wide;
  }
  double height() const {
    double high = 0;
    for (const StepTable& table : step_.tables) high += table_height(table);
    for (const StepTimeline& timeline : step_.timelines) high += timeline_height(timeline);
    return high;
  }
  void draw(Svg& svg, double x, double y) const {
    for (const StepTable& table : step_.tables) {
      draw_table(svg, table, x, y);
      y += table_height(table);
    }
    for (const StepTimeline& timeline : step_.timelines) {
      draw_timeline(svg, timeline, x, y);
      y += timeline_height(timeline);
    }
  }

 private:
  static double row_label(const StepTable& table) {
    double wide = 0;
    for (const auto& row : table.rows) wide = std::max(wide, text_width(row.first, 11));
    return wide + 12;
  }
  static double cell_width(const StepTable& table) {
    double wide = 40;
    for (const std::string& column : table.columns) wide = std::max(wide, text_width(column, 11));
    for (const auto& row : table.rows)
      for (const StepTable::Cell& cell : row.second)
        wide = std::max(wide, text_width(cell.text, 11));
    return wide + 14;
  }
  static double table_width(const StepTable& table) {
    return row_label(table) + cell_width(table) * static_cast<double>(table.columns.size());
  }
  static double table_height(const StepTable& table) {
    return kTableHead + kCell * static_cast<double>(table.rows.size()) + 18;
  }
  static double timeline_height(const StepTimeline& timeline) {
    double high = 28 + 26;
    for (const auto& lanes : timeline.ranks)
      high += kLane * static_cast<double>(lanes.size()) + kRankGap;
    return high;
  }

  void draw_table(Svg& svg, const StepTable& table, double x, double y) const {
    const double label = row_label(table), wide = cell_width(table);
    svg.text(x, y + 14, table.title, {.size = 12, .bold = true});
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      svg.text(x + label + wide * (static_cast<double>(i) + 0.5), y + kTableHead - 8,
               table.columns[i], {.size = 11, .fill = "#666666", .anchor = "middle"});
    double top = y + kTableHead;
    for (const auto& [name, cells] : table.rows) {
      svg.text(x, top + 15, name, {.size = 11});
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const double left = x + label + wide * static_cast<double>(i);
        const bool owned = cells[i].rank >= 0;
        const std::string colour = owned ? colour_of(cells[i].rank, step_.ranks) : "#cccccc";
        svg.rectangle(left + 2, top + 2, wide - 4, kCell - 4,
                      {.stroke = colour, .width = owned ? 2.2 : 0.8, .fill = "#ffffff"}, 3);
        svg.text(left + wide / 2, top + 16, cells[i].text, {.size = 11, .anchor = "middle"});
      }
      top += kCell;
    }
  }

  void draw_timeline(Svg& svg, const StepTimeline& timeline, double x, double y) const {
    svg.text(x, y + 14, timeline.about, {.size = 12, .bold = true});
    double top = y + 28;
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      std::string label = "rank " + std::to_string(rank) + "  ";
      for (const StepLane& lane : timeline.ranks[rank]) {
        svg.text(x, top + 15, label, {.size = 11, .bold = true});
        svg.text(x + text_width("rank 00  ", 11), top + 15, lane.name, {.size = 11});
        label.clear();
        for (const StepSpan& span : lane.spans) draw_span(svg, span, x + label_, top);
        top += kLane;
      }
      svg.line(x, top + kRankGap / 2 - 2, x + label_ + width_, top + kRankGap / 2 - 2,
               {.stroke = "#dddddd", .width = 0.8});
      top += kRankGap;
    }
    draw_axis(svg, timeline, x + label_, top + 2);
    moments_.draw(svg, x + label_, scale_, y + 22, top);
  }

  // Marks the end of this timeline, so that two of them can be compared.
  void draw_axis(Svg& svg, const StepTimeline& timeline, double x, double y) const {
    const double end = x + timeline.end() * scale_;
    svg.line(end, y - 8, end, y - 2, {.stroke = "#666666"});
    svg.text(x, y + 10, "0 ms", {.size = 11, .fill = "#666666"});
    svg.text(end, y + 10, fixed(1e3 * timeline.end(), 2) + " ms",
             {.size = 11, .fill = "#666666", .anchor = "end"});
  }

  void draw_span(Svg& svg, const StepSpan& span, double x, double y) const {
    const double left = x + span.begin * scale_;
    const double wide = std::max(2.0, (span.end - span.begin) * scale_);
    moments_.begin(svg, span.begin);
    const auto look = std::find_if(kLooks.begin(), kLooks.end(),
                                   [&](const Look& one) { return one.kind == span.kind; });
    svg.rectangle(left, y, wide, kBox, {.stroke = "#888888", .width = 0.6, .fill = look->colour});
    // The whole name, the part after the operation, or nothing: whatever fits.
    std::string label = span.name;
    if (text_width(label, kSize) > wide - 2) label = label.substr(label.find(' ') + 1);
    if (text_width(label, kSize) <= wide - 2)
      svg.text(left + wide / 2, y + 15, label, {.size = kSize, .anchor = "middle"});
    moments_.end(svg);
  }

  const RecordedStep& step_;
  const Moments moments_;
  double scale_ = 1, width_ = 0, label_ = 0;
};

}  // namespace

std::string svg_of(const RecordedStep& step) {
  const Picture picture(step, Moments({}));
  Notes notes;
  for (const std::string& note : step.notes) notes.emplace_back("", note);
  return svg_of(
      Sheet{.title = step.name,
            .about = step.about,
            .legend = picture.legend(),
            .width = picture.width(),
            .height = picture.height(),
            .notes = notes,
            .draw = [&](Svg& svg, double x, double y, double) { picture.draw(svg, x, y); }});
}

std::string html_of(const RecordedStep& step) {
  const auto times = moments(step);
  const Picture picture(step, times);
  Svg svg(picture.width() + 4, picture.height() + 4, step.name);
  picture.draw(svg, 2, 0);
  Page page{.title = step.name,
            .about = step.about,
            .step = "moment",
            .first = 1,
            .legend = picture.legend(),
            .pictures = frame_of(svg.finish()),
            .notes = text_of(step),
            .data = json_of(step),
            .milliseconds = 600};
  for (const double time : times) {
    std::string caption;
    for (const StepTimeline& timeline : step.timelines) {
      if (step.timelines.size() > 1) caption += timeline.about + ", ";
      caption += moment_text(timeline, time) + ". ";
    }
    page.captions.push_back(caption);
  }
  return html_of(page);
}

}  // namespace trireme::inline v0::show
