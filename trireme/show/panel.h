// One round of a recording as a drawing of known size, which a page may hold several of. Pure.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/svg.h"
#include "trireme/show/recording.h"

namespace trireme {
inline namespace v0 {
namespace show {

class Panel {
 public:
  /// Sizes fit every step of `recording`, so that panels line up.
  explicit Panel(const Recording& recording);
  double width() const noexcept { return width_; }
  double height() const noexcept { return height_; }
  void draw(Svg& svg, double x, double y, int step) const;

 private:
  void draw_cell(Svg& svg, double x, double y, const Cell& cell, bool changed, bool done) const;
  void draw_sends(Svg& svg, double x, double y, const Step& step) const;
  bool done(int rank, int chunk, const Cell& cell) const;

  const Recording& recording_;
  double label_ = 0, cell_ = 0, lanes_ = 0, text_ = 0, width_ = 0, height_ = 0;
};

/// About how wide `text` gets in a sans-serif of `size`; rather too much than too little.
double text_width(std::string_view text, double size);
/// "#1f77b4": the colour of a rank among `ranks`.
std::string colour_of(int rank, int ranks);

}  // namespace show
}  // namespace v0
}  // namespace trireme
