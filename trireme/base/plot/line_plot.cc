#include "trireme/base/plot/line_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trireme/base/plot/svg.h"
#include "trireme/base/plot/svg_legend.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace {

constexpr double kWidth = 880, kHeight = 500;
constexpr double kLeft = 76, kRight = 60, kHead = 66, kBottom = 62;
constexpr double kBold = 1.1;  // bold is wider
constexpr std::string_view kInk = "#222222", kSoft = "#666666", kGrid = "#e6e6e6";

struct Range {
  double low = 0, high = 1;
};

struct Frame {
  Range x, y;
  bool logarithmic = false;
  double top = kHead;
  double px(double value) const { return kLeft + share(value, x) * (kWidth - kLeft - kRight); }
  double py(double value) const {
    return kHeight - kBottom - share(value, y) * (kHeight - top - kBottom);
  }
  bool holds(double px, double py) const {
    return std::isfinite(px) && std::isfinite(py) && (!logarithmic || (px > 0 && py > 0));
  }
  double share(double value, const Range& range) const {
    if (logarithmic) return std::log(value / range.low) / std::log(range.high / range.low);
    return (value - range.low) / (range.high - range.low);
  }
};

// Uses an exponent if the digits would not fit beside the axis (the loss of a diverging run).
std::string tick_text(double value, double distance) {
  if (distance >= 1e6 || distance < 1e-5 || std::abs(value) >= 1e7) return formatted("%.6g", value);
  if (distance >= 1) return grouped(std::lround(value));
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(std::ceil(-std::log10(distance))),
                value);
  return text;
}

std::string last_text(double value) {
  const double size = std::abs(value);
  return formatted(size >= 1e5 || (size < 0.005 && size > 0) ? "%.2g" : "%.2f", value);
}

// 1, 2 and 5 times powers of ten, as many as enclose the range.
std::vector<double> decade_ticks(const Range& range) {
  std::vector<double> ticks;
  const int last = static_cast<int>(std::ceil(std::log10(range.high)));
  for (int power = static_cast<int>(std::floor(std::log10(range.low))); power <= last; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) ticks.push_back(factor * std::pow(10, power));
  while (ticks.size() > 2 && ticks[1] <= range.low * (1 + 1e-9)) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= range.high * (1 - 1e-9)) ticks.pop_back();
  return ticks;
}

// Powers of two within the range; without one, its ends.
std::vector<double> doubling_ticks(const Range& range) {
  std::vector<double> ticks;
  for (double tick = std::exp2(std::ceil(std::log2(range.low) - 1e-9));
       tick <= range.high * (1 + 1e-9); tick *= 2)
    ticks.push_back(tick);
  if (ticks.empty()) return {range.low, range.high};
  return ticks;
}

Frame fit_logarithms(const LinePlot& plot) {
  Frame frame{.x = {HUGE_VAL, 0}, .y = {HUGE_VAL, 0}, .logarithmic = true};
  for (const Curve& curve : plot.curves)
    for (const auto& [x, y] : curve.points) {
      if (!frame.holds(x, y)) continue;
      frame.x = {std::min(frame.x.low, x), std::max(frame.x.high, x)};
      frame.y = {std::min(frame.y.low, y), std::max(frame.y.high, y)};
    }
  for (Range* range : {&frame.x, &frame.y}) {
    if (range->low > range->high) *range = {1, 2};
    if (range->high <= range->low) range->high = 2 * range->low;
  }
  const auto ticks = decade_ticks(frame.y);
  frame.y = {ticks.front(), ticks.back()};
  return frame;
}

Frame fit(const LinePlot& plot) {
  if (plot.logarithmic) return fit_logarithms(plot);
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
  if (y.high - y.low < 1e-9 * std::max(1.0, std::abs(y.high)))
    y.high = y.low + std::max(1.0, 0.1 * std::abs(y.low));
  // The y axis ends at ticks, so that every curve lies between two labels.
  const auto ticks = round_ticks(y.low, y.high, 6);
  const double distance = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  y.low = std::floor(y.low / distance + 1e-9) * distance;
  y.high = std::ceil(y.high / distance - 1e-9) * distance;
  return {.x = x, .y = y};
}

std::vector<double> whole_ticks(const Range& range) {
  return round_ticks(range.low, range.high,
                     static_cast<int>(std::clamp(range.high - range.low, 1.0, 8.0)));
}

std::vector<LegendEntry> legend_of(const LinePlot& plot) {
  using Sample = LegendEntry::Sample;
  std::vector<LegendEntry> entries;
  for (const Curve& curve : plot.curves) {
    if (curve.name.empty()) continue;
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
  const bool logarithmic = frame.logarithmic;
  const auto x_ticks = logarithmic ? doubling_ticks(frame.x) : whole_ticks(frame.x);
  const auto y_ticks =
      logarithmic ? decade_ticks(frame.y) : round_ticks(frame.y.low, frame.y.high, 6);
  const auto text_of = [&](double tick, const std::vector<double>& ticks) {
    if (logarithmic) return formatted("%.6g", tick);
    return tick_text(tick, ticks.size() > 1 ? ticks[1] - ticks[0] : 1);
  };
  for (const double tick : y_ticks) {
    const double y = frame.py(tick);
    svg.line(kLeft, y, kWidth - kRight, y, {.stroke = kGrid});
    svg.text(kLeft - 9, y + 4, text_of(tick, y_ticks), {.fill = kSoft, .anchor = "end"});
  }
  for (const double tick : x_ticks) {
    const double x = frame.px(tick);
    svg.line(x, bottom, x, bottom + 5, {.stroke = kSoft});
    svg.text(x, bottom + 20, text_of(tick, x_ticks), {.fill = kSoft, .anchor = "middle"});
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
    if (frame.holds(x, y)) points.emplace_back(frame.px(x), frame.py(y));
  }
  svg.path(points, {.stroke = curve.color, .width = curve.width, .opacity = curve.opacity});
  if (curve.markers || points.size() == 1) {  // one point makes no line
    for (const auto& [x, y] : points) {
      svg.circle(x, y, 3.2, {.stroke = curve.color, .width = 1.5, .fill = "#ffffff"});
    }
  }
}

// Writes into the margin also for curves that end early, because others may go on there. Starts
// with the lowest value: falling curves end close to each other.
void draw_last_values(Svg& svg, const LinePlot& plot, const Frame& frame) {
  struct Label {
    double y, value;
    std::string_view color;
  };
  std::vector<Label> labels;
  for (const Curve& curve : plot.curves) {
    if (!curve.label_last || curve.points.empty()) continue;
    const auto [x, y] = curve.points.back();
    if (frame.holds(x, y)) labels.push_back({frame.py(y) + 5, y, curve.color});
  }
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.y > b.y; });
  double highest = kHeight - kBottom;
  for (const Label& label : labels) {
    highest = std::min(label.y, highest);
    const std::string text = last_text(label.value);
    const double left = std::min(kWidth - kRight + 9, kWidth - kBold * text_width(text, 13));
    svg.text(left, highest, text, {.size = 13, .fill = label.color, .bold = true});
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
  // A title may be the name of a folder, of any length.
  const double room = kWidth - kLeft - 10;
  svg.text(kLeft, 34, plot.title,
           {.size = fitting_size(plot.title, room / kBold, 18), .fill = kInk, .bold = true});
  svg.text(kLeft, 55, plot.subtitle,
           {.size = fitting_size(plot.subtitle, room, 12), .fill = kSoft});
  const std::vector<LegendEntry> legend = legend_of(plot);
  const double wide = kWidth - kLeft - kRight;
  draw_legend(svg, legend, kLeft, kHead, wide);
  Frame frame = fit(plot);
  frame.top += legend_height(legend, wide) + 12;
  draw_axes(svg, plot, frame);
  for (const Reference& reference : plot.references) {
    if (!frame.holds(1, reference.y)) continue;
    const double y = frame.py(reference.y);
    svg.line(kLeft, y, kWidth - kRight, y,
             {.stroke = reference.color, .width = 1.4, .dashes = "6 4"});
  }
  for (const Curve& curve : plot.curves) draw_curve(svg, curve, frame);
  draw_last_values(svg, plot, frame);
  return svg.finish();
}

}  // namespace trireme::inline v0
