#include "trireme/base/plot/bar_plot.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/plot/line_plot.h"
#include "trireme/base/plot/svg.h"
#include "trireme/base/plot/svg_legend.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace {

constexpr double kBarsWide = 880, kBarsHigh = 420;
constexpr double kBarsLeft = 76, kBarsRight = 40, kBarsHead = 66, kBarsBottom = 62;

double greatest(const BarPlot& plot) {
  double most = 0;
  for (const BarSeries& series : plot.series) {
    TRIREME_CHECK(series.values.size() == plot.groups.size());
    for (const double value : series.values) most = std::max(most, value);
  }
  return most > 0 ? most : 1;
}

}  // namespace

std::string draw(const BarPlot& plot) {
  Svg svg(kBarsWide, kBarsHigh, plot.title);
  svg.rectangle(0, 0, kBarsWide, kBarsHigh, {.fill = "#ffffff"});
  const double room = kBarsWide - kBarsLeft - 10;
  svg.text(kBarsLeft, 34, plot.title,
           {.size = fitting_size(plot.title, room / 1.1, 18), .fill = "#222222", .bold = true});
  svg.text(kBarsLeft, 55, plot.subtitle,
           {.size = fitting_size(plot.subtitle, room, 12), .fill = "#666666"});
  std::vector<LegendEntry> legend;
  for (const BarSeries& series : plot.series)
    legend.push_back({LegendEntry::Sample::Box, {.fill = series.color}, series.name});
  const double wide = kBarsWide - kBarsLeft - kBarsRight, bottom = kBarsHigh - kBarsBottom;
  draw_legend(svg, legend, kBarsLeft, kBarsHead, wide);
  const double top = kBarsHead + legend_height(legend, wide) + 12;
  std::vector<double> ticks = round_ticks(0, greatest(plot), 5);
  if (ticks.back() < greatest(plot)) ticks.push_back(ticks.back() + ticks[1]);
  const auto height = [&](double value) { return (bottom - top) * value / ticks.back(); };
  for (const double tick : ticks) {
    svg.line(kBarsLeft, bottom - height(tick), kBarsLeft + wide, bottom - height(tick),
             {.stroke = "#e6e6e6"});
    svg.text(kBarsLeft - 9, bottom - height(tick) + 4, number_text(tick),
             {.fill = "#666666", .anchor = "end"});
  }
  const double each = wide / static_cast<double>(std::max<std::size_t>(plot.groups.size(), 1));
  const double bar = 0.8 * each / static_cast<double>(std::max<std::size_t>(plot.series.size(), 1));
  for (std::size_t group = 0; group < plot.groups.size(); ++group) {
    const double left = kBarsLeft + each * static_cast<double>(group);
    for (std::size_t i = 0; i < plot.series.size(); ++i) {
      const double high = height(plot.series[i].values[group]);
      svg.rectangle(left + 0.1 * each + bar * static_cast<double>(i), bottom - high, bar, high,
                    {.fill = plot.series[i].color});
    }
    svg.text(left + each / 2, bottom + 20, plot.groups[group],
             {.fill = "#666666", .anchor = "middle"});
  }
  svg.line(kBarsLeft, bottom, kBarsLeft + wide, bottom, {.stroke = "#666666"});
  svg.text(kBarsLeft + wide / 2, kBarsHigh - 18, plot.x_label,
           {.size = 13, .fill = "#222222", .anchor = "middle"});
  svg.text(22, (top + bottom) / 2, plot.y_label,
           {.size = 13, .fill = "#222222", .anchor = "middle", .rotate = -90});
  return svg.finish();
}

}  // namespace trireme::inline v0
