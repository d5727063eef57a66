// Draws the rows of a schedule.
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/schedule/drawn_schedule.h"

namespace trireme::inline v0::show {
namespace {

using plan::ActionKind;

constexpr double kSize = 10;
constexpr double kBox = 24, kStrip = 16, kRow = kBox + kStrip + 10;
constexpr double kWidest = 1500, kNarrowest = 600;  // of the time axis

struct Look {
  ActionKind kind;
  const char *colour, *what;
};
constexpr std::array<Look, 5> kLooks = {
    {{ActionKind::Forward, "#9ecae1", "F forward"},
     {ActionKind::Backward, "#a1d99b", "B backward"},
     {ActionKind::BackwardInput, "#c7e9c0", "I backward, inputs"},
     {ActionKind::BackwardWeight, "#fdd0a2", "W backward, weights"},
     {ActionKind::Recompute, "#d9d9d9", "RC forward again"}}};

const char* colour_of(ActionKind kind) {
  for (const Look& look : kLooks)
    if (look.kind == kind) return look.colour;
  return kLooks[0].colour;  // the left half of an F+B
}

bool has(const DrawnSchedule& drawn, ActionKind kind) {
  for (const auto& passes : drawn.timeline.ranks) {
    for (const auto& one : passes) {
      const bool pair = one.action.kind == ActionKind::ForwardBackward;
      if (one.action.kind == kind || (pair && kind == ActionKind::Backward)) return true;
    }
  }
  return false;
}

std::vector<LegendEntry> legend_of(const DrawnSchedule& drawn) {
  std::vector<LegendEntry> entries;
  for (const Look& look : kLooks) {
    if (!has(drawn, look.kind)) continue;
    entries.push_back(
        {.style = {.stroke = "#888888", .width = 0.6, .fill = look.colour}, .text = look.what});
  }
  entries.push_back(
      {.style = {.stroke = "#cccccc", .width = 0.6, .fill = "#ffffff"}, .text = "idle"});
  entries.push_back({.style = {.stroke = "#8c6bb1", .width = 0.8, .fill = "#dadaeb"},
                     .text = "live: micro-batches whose activations the rank keeps, and the most"});
  entries.push_back(
      {.sample = LegendEntry::Sample::None, .text = "F1.2, or 2 alone: stage 1, micro-batch 2"});
  return entries;
}

class Picture {
 public:
  /// `end`: the end of the time axis, if later than that of the schedule.
  Picture(const DrawnSchedule& drawn, Moments moments, double end = 0)
      : drawn_(drawn), moments_(std::move(moments)), end_(std::max(end, drawn.timeline.end)) {
    double shortest = std::numeric_limits<double>::infinity(), widest = 0;
    for (const auto& passes : drawn.timeline.ranks) {
      for (const auto& [action, begin, end] : passes) {
        if (end > begin) shortest = std::min(shortest, end - begin);
        widest = std::max(widest, text_width(plan::text_of(action), kSize));
      }
    }
    // The labels fit into the shortest pass, unless the page would get too wide.
    scale_ = std::clamp((widest + 6) / shortest, kNarrowest / end_, kWidest / end_);
    label_ = text_width("rank " + std::to_string(drawn.schedule.ranks() - 1), 11) + 10;
    for (const plan::RankPeak& peak : drawn.peaks) most_ = std::max(most_, peak.activations);
    live_ = text_width("live " + std::to_string(most_), kSize) + 8;
  }

  /// Width of a time unit; two pictures share the smaller one.
  double scale() const { return scale_; }
  void set_scale(double scale) { scale_ = scale; }
  double width() const { return label_ + end_ * scale_ + live_; }
  double height() const { return kRow * drawn_.schedule.ranks(); }

  void draw(Svg& svg, double x, double y) const {
    const std::set<ActionKind> short_kinds = shortened();
    for (int rank = 0; rank < drawn_.schedule.ranks(); ++rank) {
      const double top = y + kRow * rank;
      svg.text(x, top + kBox / 2 + 4, "rank " + std::to_string(rank), {.size = 11});
      draw_passes(svg, x + label_, top, rank, short_kinds);
      draw_live(svg, x + label_, top + kBox + 2, rank);
    }
    moments_.draw(svg, x + label_, scale_, y - 4, y + height());
  }

 private:
  // Kinds of passes whose longest name does not fit: all of them show only their micro-batch.
  std::set<ActionKind> shortened() const {
    std::set<ActionKind> kinds;
    for (const auto& passes : drawn_.timeline.ranks)
      for (const auto& [action, begin, end] : passes)
        if (text_width(plan::text_of(action), kSize) > (end - begin) * scale_ - 2)
          kinds.insert(action.kind);
    return kinds;
  }

  void draw_passes(Svg& svg, double x, double y, int rank,
                   const std::set<ActionKind>& shortened) const {
    for (const auto& [action, begin, end] : drawn_.timeline.ranks[static_cast<std::size_t>(rank)]) {
      const double left = x + begin * scale_, wide = (end - begin) * scale_;
      if (wide <= 0) continue;
      moments_.begin(svg, begin);
      const char* colour = colour_of(action.kind);
      if (action.kind == ActionKind::ForwardBackward) {
        const double share = wide * backward_share(action);
        svg.rectangle(left, y, wide - share, kBox, {.fill = colour});
        svg.rectangle(left + wide - share, y, share, kBox,
                      {.fill = colour_of(ActionKind::Backward)});
        colour = "none";
      }
      svg.rectangle(left, y, wide, kBox, {.stroke = "#888888", .width = 0.6, .fill = colour});
      draw_label(svg, left + wide / 2, y + kBox / 2 + 4, wide, action,
                 !shortened.contains(action.kind));
      moments_.end(svg);
    }
  }

  // The share of an F+B that its backward pass takes, by the means: a recorded F+B may be shorter
  // than the mean backward pass.
  double backward_share(const plan::Action& action) const {
    const plan::StageTimes& back = drawn_.times.of(action.backward_stage);
    const double backward = back.input + back.weight,
                 both = drawn_.times.of(action.stage).forward + backward;
    return both > 0 ? backward / both : 0.5;
  }

  // The whole name, or only the micro-batch; nothing if that does not fit.
  void draw_label(Svg& svg, double x, double y, double wide, const plan::Action& action,
                  bool whole) const {
    const std::string label = whole ? plan::text_of(action) : std::to_string(action.microbatch);
    if (text_width(label, kSize) > wide - 2) return;
    svg.text(x, y, label, {.size = kSize, .fill = "#222222", .anchor = "middle"});
  }

  void draw_live(Svg& svg, double x, double y, int rank) const {
    const auto live = live_activations(drawn_, rank);
    std::vector<std::pair<double, double>> line = {{x, y + kStrip}};
    double height = y + kStrip;
    for (const auto& [time, count] : live) {
      line.emplace_back(x + time * scale_, height);
      height = y + kStrip - kStrip * count / most_;
      line.emplace_back(x + time * scale_, height);
    }
    line.emplace_back(x + end_ * scale_, height);
    line.emplace_back(x + end_ * scale_, y + kStrip);
    svg.path(line, {.stroke = "#8c6bb1", .width = 0.8, .fill = "#dadaeb"});
    svg.text(x + end_ * scale_ + 6, y + kStrip,
             "live " + std::to_string(drawn_.peaks[static_cast<std::size_t>(rank)].activations),
             {.size = kSize, .fill = "#6a51a3"});
  }

  const DrawnSchedule& drawn_;
  const Moments moments_;
  double end_;
  double scale_ = 1, label_ = 0, live_ = 0;
  int most_ = 1;
};

// A sheet of pictures below one another, with a heading each.
std::string sheet(const DrawnSchedule& drawn,
                  const std::vector<std::pair<std::string, const Picture*>>& pictures,
                  const std::string& notes) {
  double wide = 520, high = 6;
  for (const auto& [about, picture] : pictures) {
    wide = std::max({wide, picture->width(), text_width(about, 12)});
    high += 24 + picture->height();
  }
  const auto draw = [&](Svg& svg, double x, double y, double) {
    for (const auto& [about, picture] : pictures) {
      svg.text(x, y + 9, about, {.size = 12, .fill = "#555555"});
      picture->draw(svg, x, y + 24);
      y += 24 + picture->height();
    }
  };
  return svg_of(Sheet{.title = name_of(drawn),
                      .legend = legend_of(drawn),
                      .width = wide,
                      .height = high,
                      .notes = notes_of(notes),
                      .label = 76,
                      .head = 24,
                      .above = 4,
                      .draw = draw});
}

}  // namespace

std::string svg_of(const DrawnSchedule& drawn) {
  const Picture picture(drawn, Moments({}));
  return sheet(drawn, {{drawn.about, &picture}}, footer(drawn));
}

std::string svg_of(const DrawnSchedule& above, const DrawnSchedule& below,
                   const std::string& notes) {
  const double end = std::max(above.timeline.end, below.timeline.end);
  Picture first(above, Moments({}), end), second(below, Moments({}), end);
  const double scale = std::min(first.scale(), second.scale());
  first.set_scale(scale);
  second.set_scale(scale);
  return sheet(above, {{above.about, &first}, {below.about, &second}}, notes);
}

std::string html_of(const DrawnSchedule& drawn) {
  const auto steps = moments(drawn);
  const Picture picture(drawn, steps);
  Svg svg(picture.width() + 4, picture.height() + 8, name_of(drawn));
  picture.draw(svg, 2, 4);
  Page page{.title = name_of(drawn),
            .about = drawn.about,
            .step = "moment",
            .first = 1,
            .legend = legend_of(drawn),
            .pictures = frame_of(svg.finish()),
            .notes = footer(drawn),
            .data = json_of(drawn),
            .milliseconds = 400};
  for (const double moment : steps) page.captions.push_back(moment_text(drawn, moment));
  return html_of(page);
}

}  // namespace trireme::inline v0::show
