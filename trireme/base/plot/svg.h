// A small SVG writer: lines, paths, rectangles and text, with escaping and rounded numbers.
//
// Used for the project's own plots and drawings. A value that builds one string; not thread safe.
// Coordinates are user units (pixels at 100 %); y grows downwards. Colours are for a white page;
// viewers that prefer a dark page (prefers-color-scheme) get dark_of() of each.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::inline v0 {

struct SvgStyle {
  std::string_view stroke = "none";
  double width = 1;
  std::string_view fill = "none";
  double opacity = 1;
  std::string_view dashes = {};  // "4 3"
};

struct SvgText {
  double size = 12;
  std::string_view fill = "#333333";
  std::string_view anchor = "start";  // start | middle | end
  bool bold = false;
  double rotate = 0;  // degrees, around its own position
};

class Svg {
 public:
  Svg(double width, double height, std::string_view title);
  void line(double x1, double y1, double x2, double y2, const SvgStyle& style);
  void path(std::span<const std::pair<double, double>> points, const SvgStyle& style);
  void rectangle(double x, double y, double width, double height, const SvgStyle& style,
                 double radius = 0);
  void circle(double x, double y, double radius, const SvgStyle& style);
  void text(double x, double y, std::string_view text, const SvgText& style = {});
  /// Elements until end_group() get an attribute, such as `data-since="3"`, for scripts.
  void begin_group(std::string_view attribute, int value);
  void end_group();
  /// Elements until end_symbol() are not drawn but kept under `id`, which must be unique in the
  /// document. Each use() draws them, moved by x, y.
  void begin_symbol(std::string_view id);
  void end_symbol();
  void use(std::string_view id, double x = 0, double y = 0);
  /// Returns the whole document. Call it once, last.
  std::string finish();

 private:
  std::string attributes(const SvgStyle& style);
  std::string colour(std::string_view name, std::string_view value);
  std::string dark_style() const;

  std::string head_, out_;
  std::set<std::string, std::less<>> colours_;  // "fill=\"#ffffff\""
};

/// The colour for a dark page that corresponds to `colour` on a white page; both "#rrggbb". Keeps
/// the hue and turns light into dark.
std::string dark_of(std::string_view colour);
/// The approximate width of `text` in a sans-serif font of `size`; rather too large than too small.
double text_width(std::string_view text, double size);
/// The greatest font size up to `most` at which `text` is at most `width` wide.
double fitting_size(std::string_view text, double width, double most);

/// & < > " as entities; control bytes become spaces, and bytes that are no UTF-8 become U+FFFD.
std::string svg_escaped(std::string_view text);

}  // namespace trireme::inline v0
