#include "trireme/base/line_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trireme/base/svg.h"

namespace trireme {
inline namespace v0 {
namespace {

constexpr double kWidth = 880, kHeight = 500;
constexpr double kLeft = 76, kRight = 60, kTop = 76, kBottom = 62;
constexpr std::string_view kInk = "#222222", kSoft = "#666666", kGrid = "#e6e6e6";

struct Range {
  double low = 0, high = 1;
};

struct Frame {
  Range x, y;
  double px(double value) const {
    return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
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
  // The y axis ends on ticks, so that every curve lies between two labels.
  const auto ticks = round_ticks(y.low, y.high, 6);
  const double distance = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  y.low = std::floor(y.low / distance + 1e-9) * distance;
  y.high = std::ceil(y.high / distance - 1e-9) * distance;
  return {x, y};
}

void draw_axes(Svg& svg, const LinePlot& plot, const Frame& frame) {
  const double bottom = kHeight - kBottom;
  const auto x_ticks = round_ticks(frame.x.low, frame.x.high, 8);
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
  svg.text(22, (kTop + bottom) / 2, plot.y_label,
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
  if (curve.label_last && !points.empty()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", curve.points.back().second);
    svg.text(points.back().first + 9, points.back().second + 5, text,
             {.size = 13, .fill = curve.color, .bold = true});
  }
}

void draw_legend(Svg& svg, const LinePlot& plot) {
  std::size_t longest = 0;
  for (const Curve& curve : plot.curves) longest = std::max(longest, curve.name.size());
  const double width = 52 + 7.0 * static_cast<double>(longest);
  const double left = kWidth - kRight - width - 8, top = kTop + 8;
  svg.rectangle(left, top, width, 12 + 22.0 * static_cast<double>(plot.curves.size()),
                {.stroke = "#d0d0d0", .fill = "#ffffff", .opacity = 0.94}, 4);
  double y = top + 18;
  for (const Curve& curve : plot.curves) {
    svg.line(
        left + 10, y, left + 36, y,
        {.stroke = curve.color, .width = std::max(2.0, curve.width), .opacity = curve.opacity});
    if (curve.markers) {
      svg.circle(left + 23, y, 3.2, {.stroke = curve.color, .width = 1.5, .fill = "#ffffff"});
    }
    svg.text(left + 44, y + 4, curve.name, {.fill = kInk});
    y += 22;
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
  const Frame frame = fit(plot);
  draw_axes(svg, plot, frame);
  for (const Reference& reference : plot.references) {
    const double y = frame.py(reference.y);
    svg.line(kLeft, y, kWidth - kRight, y,
             {.stroke = reference.color, .width = 1.4, .dashes = "6 4"});
    svg.text(kWidth - kRight - 6, y - 6, reference.name,
             {.fill = reference.color, .anchor = "end"});
  }
  for (const Curve& curve : plot.curves) draw_curve(svg, curve, frame);
  draw_legend(svg, plot);
  return svg.finish();
}

}  // namespace v0
}  // namespace trireme
