#include "trireme/base/plot/bar_plot.h"

#include <gtest/gtest.h>

#include <regex>

namespace trireme::bar_plot_test {
namespace {

std::vector<double> heights(const std::string& svg, const std::string& color) {
  std::vector<double> found;
  const std::regex bar("<rect [^>]*height=\"([0-9.]+)\" fill=\"" + color + "\"");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), bar); it != std::sregex_iterator();
       ++it)
    found.push_back(std::stod((*it)[1]));
  return found;
}

TEST(BarPlot, BarsAreAsHighAsTheirValues) {
  const std::string svg =
      draw(BarPlot{.title = "staleness",
                   .subtitle = "of two runs",
                   .x_label = "updates",
                   .y_label = "percent",
                   .groups = {"0", "1", "2-3"},
                   .series = {{"a", {10, 40, 20}, "#1f77b4"}, {"b", {0, 5, 40}, "#d62728"}}});
  const auto a = heights(svg, "#1f77b4"), b = heights(svg, "#d62728");
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 3u);
  EXPECT_NEAR(a[1], 4 * a[0], 0.1);
  EXPECT_NEAR(a[1], b[2], 0.01);
  EXPECT_EQ(b[0], 0);
  for (const char* text : {">staleness<", ">of two runs<", ">2-3<", ">b<", ">40<"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
}

TEST(BarPlot, DrawsNothingAtAll) {
  EXPECT_NE(draw(BarPlot{}).find("</svg>"), std::string::npos);
  EXPECT_NE(draw(BarPlot{.groups = {"0"}, .series = {{"a", {0}}}}).find("</svg>"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::bar_plot_test
