#include "trireme/base/plot/line_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "trireme/base/plot/svg.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RoundTicks, AreRoundAndInside) {
  EXPECT_THAT(round_ticks(0, 2000, 8), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(round_ticks(1.2, 3.4, 5), ElementsAre(1.5, 2, 2.5, 3));
  EXPECT_THAT(round_ticks(3, 3, 5), ElementsAre(3));
}

// On logarithmic axes equal factors are equal distances.
TEST(LinePlot, LogarithmicAxesHaveRoundTicks) {
  const std::string svg =
      draw(LinePlot{.curves = {{.name = "a", .points = {{1, 3}, {8, 24}, {64, 192}, {2, 0}}},
                               {.name = "", .points = {{1, 300}}}},
                    .logarithmic = true});
  for (const char* tick : {">1<", ">2<", ">32<", ">64<", ">5<", ">100<", ">500<"})
    EXPECT_THAT(svg, HasSubstr(tick));
  EXPECT_THAT(svg, Not(HasSubstr(">1000<")));
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      svg, found,
      std::regex("d=\"M([0-9.]+) ([0-9.]+) L([0-9.]+) ([0-9.]+) L([0-9.]+) ([0-9.]+)\"")));
  const auto at = [&](std::size_t i) { return std::stod(found[i]); };
  EXPECT_NEAR(at(3) - at(1), at(5) - at(3), 0.02);
  EXPECT_NEAR(at(2) - at(4), at(4) - at(6), 0.02);
  EXPECT_GT(at(2), at(4));
}

TEST(Averaged, KeepsShortCurvesAndMeansLongOnes) {
  EXPECT_THAT(averaged({{0, 1}, {1, 3}}, 4), ElementsAre(std::pair(0., 1.), std::pair(1., 3.)));
  EXPECT_THAT(averaged({{0, 1}, {1, 3}, {2, 5}, {3, 7}}, 2),
              ElementsAre(std::pair(0.5, 2.), std::pair(2.5, 6.)));
}

TEST(LinePlot, HoldsTitleLabelsLegendAndReference) {
  LinePlot plot{.title = "gpt <nano>",
                .subtitle = "2 ranks",
                .x_label = "step",
                .y_label = "loss (nats per byte)",
                .curves = {{"training", {{0, 5}, {10, 2}}}, {"validation", {{0, 5}, {10, 2.5}}}},
                .references = {{"trigram", 1.77}}};
  const std::string svg = draw(plot);
  for (const char* part : {"gpt &lt;nano&gt;", "2 ranks", ">step<", "loss (nats per byte)",
                           ">training<", ">validation<", ">trigram<", "</svg>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
}

TEST(LinePlot, NeverWritesNanCoordinates) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(draw(LinePlot{.curves = {{"a", {{0, nan}, {1, 2}, {2, HUGE_VAL}}}}}),
              Not(HasSubstr("nan")));
  EXPECT_THAT(draw(LinePlot{.curves = {{"a", {{0, 1}, {1, 2}, {2, HUGE_VAL}}}}}),
              Not(HasSubstr("inf")));
  EXPECT_THAT(draw(LinePlot{}), Not(HasSubstr("nan")));
  EXPECT_THAT(draw(LinePlot{.curves = {{"a", {{nan, 1}, {HUGE_VAL, 2}, {3, 1}}}}}),
              AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  for (const bool logarithmic : {false, true})
    EXPECT_THAT(draw(LinePlot{.curves = {{"a", {{1, 1}, {3, 1}}}},
                              .references = {{"b", nan}, {"c", -1}},
                              .logarithmic = logarithmic}),
                Not(HasSubstr("nan")));
}

TEST(LinePlot, OnePointIsSeen) {
  const std::string one = draw(LinePlot{.curves = {{"a", {{1, 2}}}}});
  const std::string two = draw(LinePlot{.curves = {{"a", {{1, 2}, {2, 2}}}}});
  EXPECT_THAT(one, HasSubstr("<circle"));
  EXPECT_THAT(two, Not(HasSubstr("<circle")));
}

TEST(LinePlot, LogarithmicAxesWithoutAPowerOfTwoShowTheirEnds) {
  const std::string svg = draw(LinePlot{.curves = {{"a", {{5, 1}, {7, 2}}}}, .logarithmic = true});
  for (const char* tick : {">5<", ">7<"}) EXPECT_THAT(svg, HasSubstr(tick));
}

// The axis of a run with three steps had ticks at 0.5, 1.5 and 2.5.
TEST(LinePlot, StepsAreWhole) {
  const std::string svg = draw(LinePlot{.curves = {{"training", {{1, 5}, {2, 4}, {3, 3}}}}});
  for (const char* tick : {">0<", ">1<", ">2<", ">3<"}) EXPECT_THAT(svg, HasSubstr(tick));
  EXPECT_THAT(svg, Not(HasSubstr(">0.5<")));
}

// Compares the lowest text of the legend with the highest line of the grid.
TEST(LinePlot, LegendStandsAboveTheCurves) {
  LinePlot plot;
  for (int i = 0; i < 9; ++i)
    plot.curves.push_back(
        {"a run with a long name, number " + std::to_string(i), {{0, 5.0 + i}, {10, 2}}});
  const std::string svg = draw(plot);
  double lowest = 0, highest = 1e9;
  const std::regex label("<text x=\"[0-9.]+\" y=\"([0-9.]+)\"[^>]*>a run");
  const std::regex grid("<line x1=\"76\" y1=\"([0-9.]+)\"[^>]*stroke=\"#e6e6e6\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it)
    lowest = std::max(lowest, std::stod((*it)[1]));
  for (std::sregex_iterator it(svg.begin(), svg.end(), grid), end; it != end; ++it)
    highest = std::min(highest, std::stod((*it)[1]));
  EXPECT_GT(lowest, 0);
  EXPECT_LT(lowest, highest);
}

TEST(LinePlot, LastValuesStandApart) {
  LinePlot plot;
  for (const double last : {2.0, 2.01, 2.02})
    plot.curves.push_back(
        {.name = "run", .points = {{0, 5}, {10, last}}, .markers = true, .label_last = true});
  const std::string svg = draw(plot);
  std::vector<double> heights;
  const std::regex label("<text x=\"[0-9.]+\" y=\"([0-9.]+)\"[^>]*>2.0[012]<");
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it)
    heights.push_back(std::stod((*it)[1]));
  std::sort(heights.begin(), heights.end());
  ASSERT_EQ(heights.size(), 3u);
  for (std::size_t i = 1; i < 3; ++i) EXPECT_GE(heights[i] - heights[i - 1], 13);
}

// Another curve goes on where the first one ends.
TEST(LinePlot, TheLastValueOfACurveThatEndsEarlyIsInTheMargin) {
  const std::string svg = draw(LinePlot{
      .curves = {{.name = "short", .points = {{0, 5}, {5, 3.25}}, .label_last = true},
                 {.name = "long", .points = {{0, 5}, {5, 3.25}, {10, 3}}, .label_last = true}}});
  const std::regex label("<text x=\"([0-9.]+)\" [^>]*>3.(25|00)<");
  std::vector<double> lefts;
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it)
    lefts.push_back(std::stod((*it)[1]));
  ASSERT_EQ(lefts.size(), 2u);
  for (const double left : lefts) EXPECT_GT(left, 820);  // the plot's right edge
}

// The labels of a run that diverges stay on the sheet.
TEST(LinePlot, LargeAndSmallValuesHaveShortLabels) {
  for (const double last : {123456.78, 3.2e7, 5e9, 1e20, 0.0012, 4e-9}) {
    SCOPED_TRACE(last);
    for (const double first : {last, 0.0}) {
      const std::string svg = draw(LinePlot{
          .curves = {{.name = "a", .points = {{0, first}, {10, last}}, .label_last = true}}});
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr(">0.00<")));
      const std::regex label(
          "<text x=\"([0-9.]+)\"[^>]*font-size=\"([0-9.]+)\"[^>]*anchor=\"(start|end)\"[^>]*>"
          "([0-9][^<]*)<");
      int labels = 0;
      for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it, ++labels) {
        const double x = std::stod((*it)[1]),
                     wide = text_width((*it)[4].str(), std::stod((*it)[2]));
        const double left = (*it)[3] == "end" ? x - wide : x;
        EXPECT_GE(left, 0) << (*it)[4];
        EXPECT_LE(left + wide, 880) << (*it)[4];
      }
      EXPECT_GT(labels, 2);
    }
  }
}

TEST(LinePlot, LongTitlesFitTheSheet) {
  const std::string name(200, 'x');
  const std::string svg = draw(LinePlot{.title = name, .subtitle = name});
  const std::regex title("<text x=\"76\"[^>]*font-size=\"([0-9.]+)\"[^>]*>xxx");
  int titles = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), title), end; it != end; ++it, ++titles)
    EXPECT_LE(76 + text_width(name, std::stod((*it)[1])), 880);
  EXPECT_EQ(titles, 2);
}

TEST(LinePlot, AnAxisMayHaveAnyNumberOfSteps) {
  const std::string svg = draw(LinePlot{.curves = {{"a", {{0, 1}, {8e12, 2}}}}});
  for (const char* tick : {">1e+12<", ">7e+12<"}) EXPECT_THAT(svg, HasSubstr(tick));
}

TEST(LinePlot, LogarithmicTicksAreRound) {
  const std::string svg =
      draw(LinePlot{.curves = {{"a", {{1, 2e-6}, {8, 2e-5}}}}, .logarithmic = true});
  EXPECT_THAT(svg, HasSubstr(">5e-06<"));
}

TEST(Svg, HasADarkColourForEveryColour) {
  Svg svg(10, 10, "dark");
  svg.rectangle(0, 0, 10, 10, {.stroke = "#222222", .fill = "#ffffff"});
  svg.text(0, 0, "x", {.fill = "#333333"});
  const std::string text = svg.finish();
  EXPECT_THAT(text, HasSubstr("@media (prefers-color-scheme:dark)"));
  EXPECT_THAT(text, HasSubstr("[fill=\"#ffffff\"]{fill:#1c1c1c}"));
  EXPECT_THAT(text, HasSubstr("[stroke=\"#222222\"]{stroke:"));
  EXPECT_THAT(text, HasSubstr("[fill=\"#333333\"]{fill:"));
}

TEST(Svg, DarkColoursKeepTheirHue) {
  EXPECT_EQ(dark_of("#ffffff"), "#1c1c1c");
  EXPECT_EQ(dark_of("#000000"), "#f0f0f0");
  EXPECT_EQ(dark_of("#808080"), "#858585");
  const std::string red = dark_of("#ffcccc");  // dark red
  EXPECT_GT(red.substr(1, 2), red.substr(3, 2));
  EXPECT_EQ(red.substr(3, 2), red.substr(5, 2));
  EXPECT_LT(red.substr(1, 2), "90");
}

TEST(Svg, EscapesText) { EXPECT_EQ(svg_escaped("a<b>&\"\x01"), "a&lt;b&gt;&amp;&quot; "); }

// Names of runs are those of folders, which may have any bytes; an SVG that is no UTF-8 is not drawn.
TEST(Svg, TextIsUtf8) {
  EXPECT_EQ(svg_escaped("caf\xe9"), "caf\uFFFD");
  EXPECT_EQ(svg_escaped("\u00e9\u6f22<\xf0\x9f"), "\u00e9\u6f22&lt;\uFFFD\uFFFD");
}

TEST(Svg, WideCharactersHaveTheirWidth) {
  EXPECT_GE(text_width("\u6f22\u5b57", 10), 20);
  EXPECT_DOUBLE_EQ(text_width("\u03b1", 10), text_width("a", 10));
}

}  // namespace
}  // namespace trireme
