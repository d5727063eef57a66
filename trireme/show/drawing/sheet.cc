#include "trireme/show/drawing/sheet.h"

#include <algorithm>

namespace trireme::inline v0::show {

std::string svg_of(const Sheet& sheet) {
  constexpr double kMargin = 20, kLine = 18, kTitle = 16, kBold = 1.1;  // bold is wider
  double inner =
      std::max({sheet.width, text_width(sheet.about, 12), kBold * text_width(sheet.title, kTitle)});
  for (const auto& note : sheet.notes)
    inner = std::max(inner, sheet.label + text_width(note.second, 12));
  const double top = kMargin + sheet.head + legend_height(sheet.legend, inner) + sheet.above;
  double y = top + sheet.height;
  const double width = 2 * kMargin + inner;
  const double height = y + kLine * static_cast<double>(sheet.notes.size()) + sheet.below;
  Svg svg(width, height, sheet.title);
  svg.rectangle(0, 0, width, height, {.fill = "#ffffff"});
  svg.text(kMargin, kMargin + 14, sheet.title, {.size = kTitle, .bold = true});
  if (!sheet.about.empty())
    svg.text(kMargin, kMargin + 33, sheet.about, {.size = 12, .fill = "#555555"});
  draw_legend(svg, sheet.legend, kMargin, kMargin + sheet.head, inner);
  sheet.draw(svg, kMargin, top, inner);
  for (const auto& [label, text] : sheet.notes) {
    y += kLine;
    if (!label.empty()) svg.text(kMargin, y - 4, label, {.size = 12, .bold = true});
    svg.text(kMargin + sheet.label, y - 4, text, {.size = 12});
  }
  return svg.finish();
}

Notes notes_of(const std::string& text) {
  Notes notes;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    const std::size_t gap = line.find("  "), blank = gap != line.npos ? gap : line.find(' ');
    notes.emplace_back(line.substr(0, blank), line.substr(line.find_first_not_of(' ', blank)));
    begin = end + 1;
  }
  return notes;
}

}  // namespace trireme::inline v0::show
