// Draws the circles and curves of `trireme show gossip`.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "trireme/show/collective/gossip.h"
#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

constexpr double kGap = 18, kNode = 15, kLabel = 11;

struct Point {
  double x = 0, y = 0;
};

// Rank 0 is on top, the others follow clockwise.
Point place_of(int rank, int ranks, double radius, Point centre) {
  const double angle = 2 * M_PI * rank / ranks - M_PI / 2;
  return {centre.x + radius * std::cos(angle), centre.y + radius * std::sin(angle)};
}

double radius_of(int ranks) { return std::max(58.0, ranks * (2 * kNode + 10) / (2 * M_PI)); }
double panel_width(int ranks) { return 2 * (radius_of(ranks) + kNode) + 4; }
double panel_height(int ranks) { return panel_width(ranks) + 22; }

// Blue for the least initial value, white for the mean, orange for the greatest.
std::string colour_of_value(const GossipRecording& recording, double value) {
  const double share = std::clamp((value - recording.mean) / recording.farthest(0), -1.0, 1.0);
  const std::array<double, 3> end =
      share < 0 ? std::array<double, 3>{0x4a, 0x90, 0xd9} : std::array<double, 3>{0xf0, 0x8c, 0x2e};
  char text[8];
  const auto mixed = [&](std::size_t i) {
    return static_cast<int>(std::lround(255 + std::abs(share) * (end[i] - 255)));
  };
  std::snprintf(text, sizeof text, "#%02x%02x%02x", mixed(0), mixed(1), mixed(2));
  return text;
}

std::string short_number(double value) {
  return fixed(value, std::abs(value - std::round(value)) < 5e-3 ? 0 : 2);
}

// From edge to edge of two nodes, shifted to the right so that both directions are visible.
void draw_arrow(Svg& svg, Point from, Point to) {
  const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
  const double ux = dx / length, uy = dy / length, side = 3;
  const Point start{from.x + ux * kNode - uy * side, from.y + uy * kNode + ux * side};
  const Point end{to.x - ux * (kNode + 1) - uy * side, to.y - uy * (kNode + 1) + ux * side};
  const SvgStyle line{.stroke = "#777777", .width = 1.2};
  svg.line(start.x, start.y, end.x, end.y, line);
  const std::array<std::pair<double, double>, 3> head = {
      std::pair{end.x - ux * 6 - uy * 3, end.y - uy * 6 + ux * 3},
      {end.x, end.y},
      {end.x - ux * 6 + uy * 3, end.y - uy * 6 - ux * 3}};
  svg.path(head, line);
}

void draw_round(Svg& svg, const GossipRecording& recording, std::size_t round, double x, double y) {
  const double radius = radius_of(recording.ranks);
  const std::string title = round == 0 ? "before" : "round " + std::to_string(round);
  svg.text(x, y + 12, title, {.size = 12, .bold = true});
  const Point centre{x + radius + kNode + 2, y + 22 + radius + kNode};
  const auto place = [&](int rank) { return place_of(rank, recording.ranks, radius, centre); };
  for (const GossipMessage& message : recording.rounds[round].messages)
    draw_arrow(svg, place(message.from), place(message.to));
  for (int rank = 0; rank < recording.ranks; ++rank) {
    const double value = recording.rounds[round].values[static_cast<std::size_t>(rank)];
    const Point at = place(rank);
    svg.circle(at.x, at.y, kNode, {.stroke = "#333333", .fill = colour_of_value(recording, value)});
    svg.text(at.x, at.y + 4, short_number(value),
             {.size = kLabel, .fill = "#111111", .anchor = "middle"});
  }
}

void draw_curves(Svg& svg, const GossipRecording& recording, double x, double y, double width,
                 double height) {
  const double most = recording.farthest(0);
  const auto last = static_cast<double>(recording.rounds.size() - 1);
  const auto at = [&](std::size_t round, double value) {
    return std::pair{x + 30 + (width - 40) * static_cast<double>(round) / last,
                     y + height / 2 - (value - recording.mean) / most * (height / 2 - 12)};
  };
  const auto mean = at(0, recording.mean);
  svg.line(mean.first, mean.second, x + width - 10, mean.second,
           {.stroke = "#bbbbbb", .dashes = "4 3"});
  for (const double end : {recording.mean - most, recording.mean, recording.mean + most})
    svg.text(x + 24, at(0, end).second + 4, short_number(end),
             {.size = kLabel, .fill = "#555555", .anchor = "end"});
  for (std::size_t round = 0; round < recording.rounds.size(); ++round)
    svg.text(at(round, 0).first, y + height + 10, std::to_string(round),
             {.size = kLabel, .fill = "#555555", .anchor = "middle"});
  for (int rank = 0; rank < recording.ranks; ++rank) {
    std::vector<std::pair<double, double>> points;
    for (std::size_t round = 0; round < recording.rounds.size(); ++round)
      points.push_back(at(round, recording.rounds[round].values[static_cast<std::size_t>(rank)]));
    svg.path(points, {.stroke = colour_of(rank, recording.ranks), .width = 1.6});
  }
}

std::vector<LegendEntry> legend_of(int ranks) {
  using Sample = LegendEntry::Sample;
  return {{Sample::Box, {.stroke = "#333333", .fill = "#4a90d9"}, "a rank with the least value"},
          {Sample::Box, {.stroke = "#333333", .fill = "#ffffff"}, "with the mean"},
          {Sample::Box, {.stroke = "#333333", .fill = "#f08c2e"}, "with the greatest"},
          {Sample::None,
           {},
           "rank 0 is on top, ranks " + std::string(ranks > 2 ? "1, 2, ... " : "1 ") +
               "follow clockwise; the number in each is its value"},
          {Sample::Line, {.stroke = "#777777", .width = 1.2}, "arrow: sends its value"}};
}

}  // namespace

std::string svg_of(const GossipRecording& recording) {
  const auto panels = static_cast<int>(recording.rounds.size());
  const double wide = panel_width(recording.ranks) + kGap;
  const double high = panel_height(recording.ranks) + kGap;
  const int columns = std::min(panels, std::max(3, static_cast<int>(900 / wide)));
  const int rows = (panels + columns - 1) / columns;
  constexpr double kCurves = 150;
  const auto draw = [&](Svg& svg, double x, double y, double width) {
    for (int i = 0; i < panels; ++i)
      draw_round(svg, recording, static_cast<std::size_t>(i), x + i % columns * wide,
                 y + i / columns * high);
    const double below = y + rows * high;
    svg.text(x, below + 8, "value of every rank after each round; dashed: their mean",
             {.size = 12, .bold = true});
    draw_curves(svg, recording, x, below + 16, width, kCurves);
  };
  return svg_of(Sheet{.title = name_of(recording),
                      .about = recording.about,
                      .legend = legend_of(recording.ranks),
                      .width = columns * wide - kGap,
                      .height = rows * high + kCurves + 34,
                      .above = 10,
                      .draw = draw});
}

std::string html_of(const GossipRecording& recording) {
  Page page{.title = name_of(recording),
            .about = recording.about,
            .legend = legend_of(recording.ranks),
            .notes = text_of(recording),
            .data = json_of(recording)};
  const double width = panel_width(recording.ranks) + 8;
  for (std::size_t round = 0; round < recording.rounds.size(); ++round) {
    Svg svg(width, panel_height(recording.ranks) + 4,
            round == 0 ? "before" : "round " + std::to_string(round));
    draw_round(svg, recording, round, 4, 0);
    page.add_step(svg, round == 0
                           ? "Before the first round: each rank has its own number."
                           : std::to_string(recording.rounds[round].messages.size()) +
                                 " messages; then the ranks are at most " +
                                 short_number(recording.farthest(round)) + " away from the mean " +
                                 short_number(recording.mean) + ".");
  }
  return html_of(page);
}

}  // namespace trireme::inline v0::show
