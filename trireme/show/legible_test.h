// For tests of pictures: checks that the labels of an SVG do not overlap and stay on the sheet.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>
#include <vector>

#include "trireme/base/svg.h"

namespace trireme {
namespace {

struct Box {
  double left, right, top, bottom;
  std::string text;
};

double attribute_of(const std::string& element, const char* name) {
  std::smatch found;
  const std::regex pattern(std::string(" ") + name + "=\"(-?[0-9.]+)\"");
  return std::regex_search(element, found, pattern) ? std::stod(found[1]) : 0;
}

// Appends the labels of a piece of a document that is drawn at (dx, dy).
void append_labels(const std::string& svg, double dx, double dy,
                   const std::map<std::string, std::string>& symbols, std::vector<Box>& boxes) {
  static const std::regex element(
      "<text [^>]*text-anchor=\"(\\w+)\"[^>]*>([^<]*)</text>|"
      "<use href=\"#([^\"]+)\"[^>]*/>");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), element);
       it != std::sregex_iterator(); ++it) {
    const std::string one = it->str();
    const double x = dx + attribute_of(one, "x"), y = dy + attribute_of(one, "y");
    if ((*it)[3].matched) {
      append_labels(symbols.at((*it)[3]), x, y, symbols, boxes);
      continue;
    }
    const double size = attribute_of(one, "font-size"), width = text_width((*it)[2].str(), size);
    const double left = (*it)[1] == "middle" ? x - width / 2 : (*it)[1] == "end" ? x - width : x;
    if (width > 0 && one.find("rotate") == std::string::npos)
      boxes.push_back({left, left + width, y - 0.8 * size, y + 0.2 * size, (*it)[2]});
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
  std::smatch sheet;
  ASSERT_TRUE(
      std::regex_search(svg, sheet, std::regex("width=\"([0-9.]+)\" height=\"([0-9.]+)\"")));
  const std::vector<Box> boxes = labels_of(svg);
  EXPECT_GT(boxes.size(), 10u);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i];
    EXPECT_GE(a.left, 0) << a.text;
    EXPECT_LE(a.right, std::stod(sheet[1])) << a.text;
    EXPECT_LE(a.bottom, std::stod(sheet[2])) << a.text;
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      const Box& b = boxes[j];
      EXPECT_FALSE(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
          << a.text << " over " << b.text;
    }
  }
}

}  // namespace
}  // namespace trireme
