// Draws a bar for each server, with a box for each block of which it has a part.
#include <algorithm>
#include <string>

#include "trireme/base/plot/doubling_bins.h"
#include "trireme/base/words.h"
#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/server/server_layout.h"

namespace trireme::inline v0::show {
namespace {

constexpr double kSize = 10.5, kBar = 34, kRow = 52, kWide = 900;
constexpr const char *kBlock = "#9ecae1", *kOther = "#c6dbef", *kPart = "#fdd0a2";

void draw_bars(Svg& svg, const ServerLayout& layout, double x, double y) {
  const double label = text_width("server 00", 11) + 12;
  double most = 1;
  for (std::size_t server = 0; server < layout.servers.size(); ++server)
    most = std::max(most, static_cast<double>(layout.bytes(server)));
  for (std::size_t server = 0; server < layout.servers.size(); ++server, y += kRow) {
    svg.text(x, y + kBar / 2 + 4, "server " + std::to_string(server), {.size = 11});
    double left = x + label;
    bool other = false;
    for (const ServerLayout::BlockShare& part : layout.servers[server]) {
      const double wide = static_cast<double>(part.bytes) / most * kWide;
      svg.rectangle(left, y, wide, kBar,
                    {.stroke = "#888888",
                     .width = 0.6,
                     .fill = !part.whole ? kPart
                             : other     ? kOther
                                         : kBlock});
      if (text_width(part.block, kSize) <= wide - 4)
        svg.text(left + wide / 2, y + kBar / 2 + 4, part.block,
                 {.size = kSize, .anchor = "middle"});
      left += wide;
      other = !other;
    }
    const auto own = static_cast<double>(layout.bytes(server));
    svg.text(left + 8, y + kBar / 2 + 4,
             own > 0 ? bytes_text(own) + ", " +
                           percent_text(own / static_cast<double>(layout.all_bytes()))
                     : "nothing",
             {.size = 11, .fill = "#555555"});
  }
}

}  // namespace

std::string svg_of(const ServerLayout& layout) {
  const std::vector<LegendEntry> legend = {
      {.style = {.stroke = "#888888", .width = 0.6, .fill = kBlock},
       .text = "a block of the model, as wide as its bytes"},
      {.style = {.stroke = "#888888", .width = 0.6, .fill = kPart},
       .text = "a part of a block that is cut"}};
  return svg_of(
      Sheet{.title = layout.name,
            .about = layout.about,
            .legend = legend,
            .width = text_width("server 00", 11) + 12 + kWide + 120,
            .height = kRow * static_cast<double>(layout.servers.size()),
            .above = 14,
            .draw = [&](Svg& svg, double x, double y, double) { draw_bars(svg, layout, x, y); }});
}

std::string html_of(const ServerLayout& layout) {
  return html_of(Page{.title = layout.name,
                      .about = layout.about,
                      .pictures = frame_of(svg_of(layout)),
                      .notes = text_of(layout),
                      .data = json_of(layout)});
}

}  // namespace trireme::inline v0::show
