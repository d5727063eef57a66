// What the marks of a drawing mean: a sample of each with its words, in lines of a given width.
//
// Pure. The strings of a sample's style outlive the call.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/svg.h"

namespace trireme {
inline namespace v0 {

struct LegendEntry {
  enum class Sample { Box, Line, MarkedLine, Arrow, None };
  Sample sample = Sample::Box;
  SvgStyle style;
  std::string text;
};

/// How high the legend gets; 0 without entries.
double legend_height(const std::vector<LegendEntry>& entries, double width);
/// Its upper left corner is x, y.
void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries, double x, double y,
                 double width);

}  // namespace v0
}  // namespace trireme
