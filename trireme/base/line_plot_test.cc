#include "trireme/base/line_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/svg.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RoundTicks, AreRoundAndInside) {
  EXPECT_THAT(round_ticks(0, 2000, 8), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(round_ticks(1.2, 3.4, 5), ElementsAre(1.5, 2, 2.5, 3));
  EXPECT_THAT(round_ticks(3, 3, 5), ElementsAre(3));
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
  EXPECT_THAT(draw({.curves = {{"a", {{0, nan}, {1, 2}, {2, HUGE_VAL}}}}}), Not(HasSubstr("nan")));
  EXPECT_THAT(draw({.curves = {{"a", {{0, 1}, {1, 2}, {2, HUGE_VAL}}}}}), Not(HasSubstr("inf")));
  EXPECT_THAT(draw({}), Not(HasSubstr("nan")));
}

TEST(Svg, EscapesText) { EXPECT_EQ(svg_escaped("a<b>&\"\x01"), "a&lt;b&gt;&amp;&quot; "); }

}  // namespace
}  // namespace trireme
