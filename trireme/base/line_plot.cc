#include "trireme/base/line_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trireme/base/svg.h"
#include "trireme/base/svg_legend.h"

namespace trireme::inline v0 {
namespace {

constexpr double kWidth = 880, kHeight = 500;
constexpr double kLeft = 76, kRight = 60, kHead = 66, kBottom = 62;
constexpr std::string_view kInk = "#222222", kSoft = "#666666", kGrid = "#e6e6e6";

struct Range {
  double low = 0, high = 1;
};

struct Frame {
  Range x, y;
  double top = kHead;
  double px(double value) const {
    return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - top - kBottom);
  }
};

std::string thousands(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  std::string out = text;
  for (std::size_t i = out.size(); i > 3 && out[i - 4] != '-'; i -= 3) out.insert(i - 3, 1, ',');
  return out;
}

std::string tick_text(double value, double distance) {
  if (distance >= 1) return thousands(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(std::ceil(-std::log10(distance))),
                value);
  return text;
}

Frame fit(const LinePlot& plot) {
  Range x{HUGE_VAL, -HUGE_VAL}, y{HUGE_VAL, -HUGE_VAL};
  const auto stretch = [](Range& range, double value) {
    if (!std::isfinite(value)) return;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  };
  for (const Curve& curve : plot.curves) {
    for (const auto& [px, py] : curve.points) {
      stretch(x, px);
      stretch(y, py);
    }
  }
  for (const Reference& reference : plot.references) stretch(y, reference.y);
  if (x.low > x.high) x = {0, 1};
  if (y.low > y.high) y = {0, 1};
  x.low = std::min(x.low, 0.0);
  if (x.high <= x.low) x.high = x.low + 1;
  if (y.high - y.low < 1e-9 * std::max(1.0, std::abs(y.high))) y.high = y.low + 1;
  // The y axis ends at ticks, so that every curve lies between two labels.
  const auto ticks = round_ticks(y.low, y.high, 6);
  const double distance = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  y.low = std::floor(y.low / distance + 1e-9) * distance;
  y.high = std::ceil(y.high / distance - 1e-9) * distance;
  return {x, y};
}

std::vector<double> whole_ticks(const Range& range) {
  return round_ticks(range.low, range.high,
                     std::clamp(static_cast<int>(range.high - range.low), 1, 8));
}

std::vector<LegendEntry> legend_of(const LinePlot& plot) {
  using Sample = LegendEntry::Sample;
  std::vector<LegendEntry> entries;
  for (const Curve& curve : plot.curves) {
    entries.push_back(
        {curve.markers ? Sample::MarkedLine : Sample::Line,
         {.stroke = curve.color, .width = std::max(2.0, curve.width), .opacity = curve.opacity},
         curve.name});
  }
  for (const Reference& reference : plot.references)
    entries.push_back(
        {Sample::Line, {.stroke = reference.color, .width = 1.4, .dashes = "6 4"}, reference.name});
  return entries;
}

void draw_axes(Svg& svg, const LinePlot& plot, const Frame& frame) {
  const double bottom = kHeight - kBottom;
  const auto x_ticks = whole_ticks(frame.x);
  const auto y_ticks = round_ticks(frame.y.low, frame.y.high, 6);
  for (const double tick : y_ticks) {
    const double y = frame.py(tick);
    svg.line(kLeft, y, kWidth - kRight, y, {.stroke = kGrid});
    svg.text(kLeft - 9, y + 4, tick_text(tick, y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : 1),
             {.fill = kSoft, .anchor = "end"});
  }
  for (const double tick : x_ticks) {
    const double x = frame.px(tick);
    svg.line(x, bottom, x, bottom + 5, {.stroke = kSoft});
    svg.text(x, bottom + 20, tick_text(tick, x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : 1),
             {.fill = kSoft, .anchor = "middle"});
  }
  svg.line(kLeft, bottom, kWidth - kRight, bottom, {.stroke = kSoft});
  svg.text((kLeft + kWidth - kRight) / 2, kHeight - 18, plot.x_label,
           {.size = 13, .fill = kInk, .anchor = "middle"});
  svg.text(22, (frame.top + bottom) / 2, plot.y_label,
           {.size = 13, .fill = kInk, .anchor = "middle", .rotate = -90});
}

void draw_curve(Svg& svg, const Curve& curve, const Frame& frame) {
  std::vector<std::pair<double, double>> points;
  for (const auto& [x, y] : curve.points) {
    if (std::isfinite(y)) points.emplace_back(frame.px(x), frame.py(y));
  }
  svg.path(points, {.stroke = curve.color, .width = curve.width, .opacity = curve.opacity});
  if (curve.markers) {
    for (const auto& [x, y] : points) {
      svg.circle(x, y, 3.2, {.stroke = curve.color, .width = 1.5, .fill = "#ffffff"});
    }
  }
}

// From the lowest value upwards, since falling curves end close to each other at the bottom.
void draw_last_values(Svg& svg, const LinePlot& plot, const Frame& frame) {
  struct Label {
    double x, y, value;
    std::string_view color;
  };
  std::vector<Label> labels;
  for (const Curve& curve : plot.curves) {
    if (!curve.label_last || curve.points.empty()) continue;
    const auto [x, y] = curve.points.back();
    if (std::isfinite(y)) labels.push_back({frame.px(x), frame.py(y) + 5, y, curve.color});
  }
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.y > b.y; });
  double highest = kHeight - kBottom;
  for (const Label& label : labels) {
    highest = std::min(label.y, highest);
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", label.value);
    svg.text(label.x + 9, highest, text, {.size = 13, .fill = label.color, .bold = true});
    highest -= 15;
  }
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int wanted) {
  if (!(high > low) || wanted < 1) return {low};
  const double rough = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double distance = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      distance = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const auto first = static_cast<long>(std::ceil(low / distance - 1e-9));
  const auto last = static_cast<long>(std::floor(high / distance + 1e-9));
  for (long i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * distance);
  return ticks;
}

std::vector<std::pair<double, double>> averaged(
    const std::vector<std::pair<double, double>>& points, std::size_t most) {
  if (points.size() <= most || most == 0) return points;
  std::vector<std::pair<double, double>> out;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = i * points.size() / most, end = (i + 1) * points.size() / most;
    double x = 0, y = 0;
    for (std::size_t j = begin; j < end; ++j) {
      x += points[j].first;
      y += points[j].second;
    }
    const auto count = static_cast<double>(end - begin);
    out.emplace_back(x / count, y / count);
  }
  return out;
}

std::string draw(const LinePlot& plot) {
  Svg svg(kWidth, kHeight, plot.title);
  svg.rectangle(0, 0, kWidth, kHeight, {.fill = "#ffffff"});
  svg.text(kLeft, 34, plot.title, {.size = 18, .fill = kInk, .bold = true});
  svg.text(kLeft, 55, plot.subtitle, {.size = 12, .fill = kSoft});
  const std::vector<LegendEntry> legend = legend_of(plot);
  const double wide = kWidth - kLeft - kRight;
  draw_legend(svg, legend, kLeft, kHead, wide);
  Frame frame = fit(plot);
  frame.top += legend_height(legend, wide) + 12;
  draw_axes(svg, plot, frame);
  for (const Reference& reference : plot.references) {
    const double y = frame.py(reference.y);
    svg.line(kLeft, y, kWidth - kRight, y,
             {.stroke = reference.color, .width = 1.4, .dashes = "6 4"});
  }
  for (const Curve& curve : plot.curves) draw_curve(svg, curve, frame);
  draw_last_values(svg, plot, frame);
  return svg.finish();
}

}  // namespace trireme::inline v0
