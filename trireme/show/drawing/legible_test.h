// For tests of pictures: checks that the labels of an SVG do not overlap and stay on the sheet.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/plot/svg.h"

namespace trireme {
namespace {

struct Box {
  double left, right, top, bottom;
  std::string text;
};

// The text of an attribute of a tag; empty if the tag has none of that name.
std::string attribute_of(const std::string& tag, const std::string& name) {
  const std::string begin = " " + name + "=\"";
  const std::size_t at = tag.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t value = at + begin.size();
  return tag.substr(value, tag.find('"', value) - value);
}

// 0 if there is none.
double number_of(const std::string& tag, const std::string& name) {
  const std::string text = attribute_of(tag, name);
  return text.empty() ? 0 : std::stod(text);
}

// Appends a label whose anchor is at (x, y).
void append_label(const std::string& tag, const std::string& text, double x, double y,
                  std::vector<Box>& boxes) {
  const std::string anchor = attribute_of(tag, "text-anchor");
  const double size = number_of(tag, "font-size"), width = text_width(text, size);
  const double left = anchor == "middle" ? x - width / 2 : anchor == "end" ? x - width : x;
  if (width > 0 && tag.find("rotate") == std::string::npos)
    boxes.push_back({left, left + width, y - 0.8 * size, y + 0.2 * size, text});
}

// Appends the labels of a piece of a document that is drawn at (dx, dy). Not by std::regex, which took
// most of these tests' time.
void append_labels(const std::string& svg, double dx, double dy,
                   const std::map<std::string, std::string>& symbols, std::vector<Box>& boxes) {
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return;
    const std::string tag = svg.substr(at, end - at);
    const double x = dx + number_of(tag, "x"), y = dy + number_of(tag, "y");
    if (tag.starts_with("<use href=\"#")) {
      append_labels(symbols.at(attribute_of(tag, "href").substr(1)), x, y, symbols, boxes);
    } else if (tag.starts_with("<text ") && !attribute_of(tag, "text-anchor").empty()) {
      const std::size_t after = svg.find('<', end);
      if (svg.compare(after, 7, "</text>") == 0)
        append_label(tag, svg.substr(end + 1, after - end - 1), x, y, boxes);
    }
  }
}

std::vector<Box> labels_of(std::string svg) {
  const std::string begin = "<defs><g id=\"", end = "</g></defs>\n";
  std::map<std::string, std::string> symbols;
  for (std::size_t at = 0; (at = svg.find(begin, at)) != std::string::npos;) {
    const std::size_t name = at + begin.size(), inside = svg.find('"', name);
    const std::size_t last = svg.find(end, inside);
    symbols[svg.substr(name, inside - name)] = svg.substr(inside + 2, last - inside - 2);
    svg.erase(at, last + end.size() - at);
  }
  std::vector<Box> boxes;
  append_labels(svg, 0, 0, symbols, boxes);
  return boxes;
}

void expect_legible(const std::string& svg) {
  const std::string sheet = svg.substr(0, svg.find('>'));
  const double width = number_of(sheet, "width"), height = number_of(sheet, "height");
  ASSERT_GT(width, 0);
  ASSERT_GT(height, 0);
  const std::vector<Box> boxes = labels_of(svg);
  EXPECT_GT(boxes.size(), 10u);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i];
    EXPECT_GE(a.left, 0) << a.text;
    EXPECT_LE(a.right, width) << a.text;
    EXPECT_LE(a.bottom, height) << a.text;
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      const Box& b = boxes[j];
      EXPECT_FALSE(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
          << a.text << " over " << b.text;
    }
  }
}

}  // namespace
}  // namespace trireme
