// A line plot as SVG: curves over steps with axes, round ticks, units, legend and reference lines.
// The legend stands above the axes, where no curve can run below it. What lies along x is counted
// (steps, ranks), so its ticks are whole numbers.
//
// Plain values in, one document out. Points that are not finite are left out of a curve.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {
inline namespace v0 {

struct Curve {
  std::string name;                               // legend
  std::vector<std::pair<double, double>> points;  // ascending x
  std::string color = "#1f77b4";
  double width = 2;
  double opacity = 1;
  bool markers = false;
  bool label_last = false;  // write the last y beside it, apart from other curves'
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
};

std::string draw(const LinePlot& plot);

/// Round tick values that cover [low, high]: 1, 2 or 5 times a power of ten apart, about `wanted`.
std::vector<double> round_ticks(double low, double high, int wanted);

/// Means over at most `most` equal runs of points: a noisy curve that the eye can follow.
std::vector<std::pair<double, double>> averaged(
    const std::vector<std::pair<double, double>>& points, std::size_t most);

}  // namespace v0
}  // namespace trireme
