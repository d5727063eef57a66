// A still picture: title, description, legend, the drawing and notes below it, on white. Pure.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/plot/svg.h"
#include "trireme/base/plot/svg_legend.h"

namespace trireme::inline v0::show {

/// A label, which may be empty, and its text.
using Notes = std::vector<std::pair<std::string, std::string>>;

struct Sheet {
  std::string title, about;
  std::vector<LegendEntry> legend;
  double width = 0, height = 0;  // of the drawing; the sheet is as wide as its texts need
  Notes notes = {};
  double label = 0;  // width of the notes' labels
  double head = 44;  // from the margin to the legend
  double above = 8;  // between legend and drawing
  double below = 20;
  /// Draws at x, y; `width` is that of the sheet without its margins.
  std::function<void(Svg& svg, double x, double y, double width)> draw;
};

std::string svg_of(const Sheet& sheet);
/// "label   text" lines as notes. A label ends at two blanks, else at the first.
Notes notes_of(const std::string& text);

}  // namespace trireme::inline v0::show
