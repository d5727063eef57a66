#include "trireme/base/plot/svg_legend.h"

#include <array>
#include <utility>

namespace trireme::inline v0 {
namespace {

constexpr double kLine = 20, kSample = 22, kSize = 11, kBetween = 18;

// Width of the sample before the text.
double indent_of(const LegendEntry& entry) {
  return entry.sample == LegendEntry::Sample::None ? 0 : kSample + 6;
}

double width_of(const LegendEntry& entry) {
  return indent_of(entry) + text_width(entry.text, kSize) + kBetween;
}

// Calls place(entry, x, y) for each entry, starting at 0, 0; returns the height.
double flow(const std::vector<LegendEntry>& entries, double width, auto place) {
  if (entries.empty()) return 0;
  double x = 0, y = 0;
  for (const LegendEntry& entry : entries) {
    if (x > 0 && x + width_of(entry) - kBetween > width) {
      x = 0;
      y += kLine;
    }
    place(entry, x, y);
    x += width_of(entry);
  }
  return y + kLine;
}

void draw_sample(Svg& svg, const LegendEntry& entry, double x, double y) {
  using Sample = LegendEntry::Sample;
  if (entry.sample == Sample::None) return;
  const double middle = y + 9, end = x + kSample;
  if (entry.sample == Sample::Box) {
    svg.rectangle(x + 2, y + 3, kSample - 4, 12, entry.style, 2);
    return;
  }
  svg.line(x, middle, end, middle, entry.style);
  if (entry.sample == Sample::MarkedLine) {
    svg.circle((x + end) / 2, middle, 3.2,
               {.stroke = entry.style.stroke, .width = 1.5, .fill = "#ffffff"});
  }
  if (entry.sample == Sample::Arrow) {
    svg.circle(x + 3, middle, 3.2, {.fill = entry.style.stroke});
    const std::array<std::pair<double, double>, 4> head = {
        {{end - 8, middle - 4.5}, {end, middle}, {end - 8, middle + 4.5}, {end - 8, middle - 4.5}}};
    svg.path(head, {.stroke = entry.style.stroke, .width = 1, .fill = entry.style.stroke});
  }
}

}  // namespace

double legend_height(const std::vector<LegendEntry>& entries, double width) {
  return flow(entries, width, [](const LegendEntry&, double, double) {});
}

void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries, double x, double y,
                 double width) {
  flow(entries, width, [&](const LegendEntry& entry, double dx, double dy) {
    draw_sample(svg, entry, x + dx, y + dy);
    svg.text(x + dx + indent_of(entry), y + dy + 13, entry.text, {.size = kSize});
  });
}

}  // namespace trireme::inline v0
