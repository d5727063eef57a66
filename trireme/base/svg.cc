#include "trireme/base/svg.h"

#include <cstdio>

namespace trireme {
inline namespace v0 {
namespace {

// Two decimals are a hundredth of a pixel; trailing zeros are cut.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string out = text;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string attribute(std::string_view name, std::string_view value) {
  return ' ' + std::string(name) + "=\"" + svg_escaped(value) + '"';
}

std::string attribute(std::string_view name, double value) {
  return attribute(name, number(value));
}

std::string attributes(const SvgStyle& style) {
  std::string out = attribute("fill", style.fill) + attribute("stroke", style.stroke);
  if (style.stroke != "none") out += attribute("stroke-width", style.width);
  if (style.opacity < 1) out += attribute("opacity", style.opacity);
  if (!style.dashes.empty()) out += attribute("stroke-dasharray", style.dashes);
  return out;
}

}  // namespace

std::string svg_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title) {
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", width) +
         attribute("height", height) +
         attribute("viewBox", "0 0 " + number(width) + ' ' + number(height)) +
         " font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" role=\"img\">\n<title>" +
         svg_escaped(title) + "</title>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, const SvgStyle& style) {
  out_ += "<line" + attribute("x1", x1) + attribute("y1", y1) + attribute("x2", x2) +
          attribute("y2", y2) + attributes(style) + "/>\n";
}

void Svg::path(std::span<const std::pair<double, double>> points, const SvgStyle& style) {
  if (points.empty()) return;
  out_ += "<path d=\"";
  for (std::size_t i = 0; i < points.size(); ++i) {
    out_ += (i == 0 ? "M" : " L") + number(points[i].first) + ' ' + number(points[i].second);
  }
  out_ += "\" stroke-linejoin=\"round\" stroke-linecap=\"round\"" + attributes(style) + "/>\n";
}

void Svg::rectangle(double x, double y, double width, double height, const SvgStyle& style,
                    double radius) {
  out_ += "<rect" + attribute("x", x) + attribute("y", y) + attribute("width", width) +
          attribute("height", height);
  if (radius > 0) out_ += attribute("rx", radius);
  out_ += attributes(style) + "/>\n";
}

void Svg::circle(double x, double y, double radius, const SvgStyle& style) {
  out_ += "<circle" + attribute("cx", x) + attribute("cy", y) + attribute("r", radius) +
          attributes(style) + "/>\n";
}

void Svg::text(double x, double y, std::string_view text, const SvgText& style) {
  out_ += "<text" + attribute("x", x) + attribute("y", y) + attribute("font-size", style.size) +
          attribute("fill", style.fill) + attribute("text-anchor", style.anchor);
  if (style.bold) out_ += attribute("font-weight", "600");
  if (style.rotate != 0) {
    out_ += attribute("transform",
                      "rotate(" + number(style.rotate) + ' ' + number(x) + ' ' + number(y) + ')');
  }
  out_ += '>' + svg_escaped(text) + "</text>\n";
}

void Svg::begin_group(std::string_view name, int value) {
  out_ += "<g" + attribute(name, std::to_string(value)) + ">\n";
}

void Svg::end_group() { out_ += "</g>\n"; }

std::string Svg::finish() { return std::move(out_) + "</svg>\n"; }

}  // namespace v0
}  // namespace trireme
