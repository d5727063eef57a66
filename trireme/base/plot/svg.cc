#include "trireme/base/plot/svg.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "trireme/base/utf8.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace {

// Rounds to a hundredth of a pixel and cuts trailing zeros.
std::string number(double value) {
  std::string out = formatted("%.2f", value);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

using Entity = std::pair<char, std::string_view>;
constexpr Entity kEntities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};

std::string attribute(std::string_view name, std::string_view value) {
  return ' ' + std::string(name) + "=\"" + svg_escaped(value) + '"';
}

std::string attribute(std::string_view name, double value) {
  return attribute(name, number(value));
}

// Widths of DejaVu Sans, the widest font that a viewer may pick.
double width_of(char c) {
  if (c == '+') return 0.84;
  if (std::string_view(",.;:()i lj'").find(c) != std::string_view::npos) return 0.36;
  if (std::isupper(static_cast<unsigned char>(c)) || c == 'm' || c == 'w') return 0.8;
  return 0.637;
}

}  // namespace

std::string svg_escaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (const std::size_t length = utf8_length(text, at); length != 1) {
      out += length == 0 ? "\uFFFD" : text.substr(at, length);
      at += std::max<std::size_t>(length, 1) - 1;
      continue;
    }
    if (const auto* known = std::ranges::find(kEntities, c, &Entity::first);
        known != std::end(kEntities)) {
      out += known->second;
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    // A UTF-8 character of several bytes counts once; of three or more it may be a wide one (Han).
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) != 0x80) width += byte < 0xe0 ? width_of(c) : 1;
  }
  return width * size;
}

double fitting_size(std::string_view text, double width, double most) {
  const double wide = text_width(text, most);
  return wide > width ? most * width / wide : most;
}

// Maps lightness l (of hue, saturation, lightness) to 0.94 - 0.83 l, so white becomes 0.11.
std::string dark_of(std::string_view colour) {
  std::array<double, 3> part{};
  for (std::size_t i = 0; i < 3; ++i) {
    part[i] = std::strtol(std::string(colour.substr(1 + 2 * i, 2)).c_str(), nullptr, 16) / 255.0;
  }
  const double least = *std::min_element(part.begin(), part.end());
  const double most = *std::max_element(part.begin(), part.end());
  const double light = (least + most) / 2, range = most - least;
  const double saturation = range > 0 ? range / (1 - std::abs(2 * light - 1)) : 0;
  const double dark = 0.94 - 0.83 * light, spread = saturation * (1 - std::abs(2 * dark - 1));
  char text[8];
  const auto channel = [&](std::size_t i) {
    const double share = range > 0 ? (part[i] - least) / range : 0.5;
    return static_cast<unsigned>(std::lround(255 * (dark + spread * (share - 0.5)))) & 0xffu;
  };
  std::snprintf(text, sizeof text, "#%02x%02x%02x", channel(0), channel(1), channel(2));
  return text;
}

Svg::Svg(double width, double height, std::string_view title) {
  head_ = "<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", width) +
          attribute("height", height) +
          attribute("viewBox", "0 0 " + number(width) + ' ' + number(height)) +
          " font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" role=\"img\">\n<title>" +
          svg_escaped(title) + "</title>\n";
}

std::string Svg::colour(std::string_view name, std::string_view value) {
  std::string out = attribute(name, value);
  if (value.starts_with('#')) colours_.insert(out.substr(1));
  return out;
}

std::string Svg::attributes(const SvgStyle& style) {
  std::string out = colour("fill", style.fill);
  if (style.stroke != "none")
    out += colour("stroke", style.stroke) + attribute("stroke-width", style.width);
  if (style.opacity < 1) out += attribute("opacity", style.opacity);
  if (!style.dashes.empty()) out += attribute("stroke-dasharray", style.dashes);
  return out;
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
          colour("fill", style.fill) + attribute("text-anchor", style.anchor);
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

void Svg::begin_symbol(std::string_view id) { out_ += "<defs><g" + attribute("id", id) + ">\n"; }

void Svg::end_symbol() { out_ += "</g></defs>\n"; }

void Svg::use(std::string_view id, double x, double y) {
  out_ += "<use href=\"#" + svg_escaped(id) + '"';
  if (x != 0) out_ += attribute("x", x);
  if (y != 0) out_ += attribute("y", y);
  out_ += "/>\n";
}

// A style overrides the attribute that selects it.
std::string Svg::dark_style() const {
  std::string rules;
  for (const std::string& one : colours_) {
    const std::size_t equals = one.find('=');
    const std::string name = one.substr(0, equals), value = one.substr(equals + 2, 7);
    rules += "[" + one + "]{" + name + ":" + dark_of(value) + "}\n";
  }
  return "<style>@media (prefers-color-scheme:dark){\n" + rules + "}</style>\n";
}

std::string Svg::finish() { return std::move(head_) + dark_style() + out_ + "</svg>\n"; }

}  // namespace trireme::inline v0
