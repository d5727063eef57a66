// The legend of a drawing: a sample of each mark with its text, in lines of a given width. Pure.
// The strings of a sample's style must outlive the call.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/plot/svg.h"

namespace trireme::inline v0 {

struct LegendEntry {
  enum class Sample { Box, Line, MarkedLine, Arrow, None };
  Sample sample = Sample::Box;
  SvgStyle style;
  std::string text;
};

/// Height of the legend; 0 without entries.
double legend_height(const std::vector<LegendEntry>& entries, double width);
/// Draws the legend with its upper left corner at x, y.
void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries, double x, double y,
                 double width);

}  // namespace trireme::inline v0
