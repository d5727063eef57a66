// Draws one round of a recording at a known size, so that a page can hold several. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/plot/svg.h"
#include "trireme/base/plot/svg_legend.h"
#include "trireme/show/collective/recording.h"

namespace trireme::inline v0::show {

class Panel {
 public:
  /// The size fits every step of `recording`, so that panels line up.
  explicit Panel(const Recording& recording);
  double width() const noexcept { return width_; }
  double height() const noexcept { return height_; }
  /// Explains the marks of a panel.
  std::vector<LegendEntry> legend() const;
  /// Defines the symbols that panels of these steps share. Once per document, before draw().
  void define(Svg& svg, const std::vector<int>& steps) const;
  /// Draws one step; `note` stands beside the title.
  void draw(Svg& svg, double x, double y, int step, std::string_view note = {}) const;

 private:
  void define_content(Svg& svg, const Cell& cell, const std::string& id) const;
  void draw_cell(Svg& svg, double x, double y, const Cell& cell, bool changed, bool done) const;
  void draw_sends(Svg& svg, double x, double y, const Step& step) const;
  std::string label_of(const Cell& cell) const;
  bool done(int rank, int chunk, const Cell& cell) const;

  const Recording& recording_;
  std::map<Cell, std::string> contents_;  // content of a cell -> symbol that draws it
  double label_ = 0, cell_ = 0, lanes_ = 0, text_ = 0, width_ = 0, height_ = 0;
};

/// "#4e79a7": the colour of a rank among `ranks`.
std::string colour_of(int rank, int ranks);

}  // namespace trireme::inline v0::show
