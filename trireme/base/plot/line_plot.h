// A line plot as SVG: curves over steps with axes, round ticks, units, legend and reference lines.
// The legend is above the axes, where it hides no curve. x values are counts (steps, ranks), so
// their ticks are whole numbers. Plain values; points that are not finite, or not positive on
// logarithmic axes, are not drawn.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme::inline v0 {

struct Curve {
  std::string name;                               // legend; empty: no entry
  std::vector<std::pair<double, double>> points;  // ascending x
  std::string color = "#1f77b4";
  double width = 2;
  double opacity = 1;
  bool markers = false;
  bool label_last = false;  // write the last y at the right margin, without overlaps
};

/// A dashed horizontal line, such as a baseline.
struct Reference {
  std::string name;
  double y = 0;
  std::string color = "#888888";
};

struct LinePlot {
  std::string title, subtitle;
  std::string x_label, y_label;  // with units: "loss (nats per byte)"
  std::vector<Curve> curves;
  std::vector<Reference> references;
  bool logarithmic = false;  // both axes
};

std::string draw(const LinePlot& plot);

/// Round ticks covering [low, high]: about `wanted` values, 1, 2 or 5 times a power of ten apart.
std::vector<double> round_ticks(double low, double high, int wanted);

/// Means over at most `most` runs of points of equal length, to smooth a noisy curve.
std::vector<std::pair<double, double>> averaged(
    const std::vector<std::pair<double, double>>& points, std::size_t most);

}  // namespace trireme::inline v0
