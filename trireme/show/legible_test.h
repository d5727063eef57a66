// For tests of pictures: the labels of an SVG stand apart and on the sheet.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "trireme/show/panel.h"

namespace trireme {
namespace {

struct Box {
  double left, right, top, bottom;
  std::string text;
};

std::vector<Box> labels_of(const std::string& svg) {
  static const std::regex label(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" font-size=\"([0-9.]+)\"[^>]*text-anchor=\"(\\w+)\""
      "[^>]*>([^<]*)</text>");
  std::vector<Box> boxes;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), label); it != std::sregex_iterator();
       ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]), size = std::stod((*it)[3]);
    const double width = show::text_width((*it)[5].str(), size);
    const double left = (*it)[4] == "middle" ? x - width / 2 : x;
    if (width > 0) boxes.push_back({left, left + width, y - 0.8 * size, y + 0.2 * size, (*it)[5]});
  }
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
