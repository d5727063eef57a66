// A plot of grouped bars as SVG: for each group (a bin of a histogram) one bar of each series, with
// axes, round ticks and a legend. In the style of LinePlot. Plain values.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0 {

struct BarSeries {
  std::string name;            // legend
  std::vector<double> values;  // by group; not negative
  std::string color = "#1f77b4";
};

struct BarPlot {
  std::string title, subtitle;
  std::string x_label, y_label;
  std::vector<std::string> groups;
  std::vector<BarSeries> series;
};

std::string draw(const BarPlot& plot);

}  // namespace trireme::inline v0
