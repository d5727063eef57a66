#include "trireme/show/server/server_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/show/drawing/legible_test.h"

namespace trireme::server_layout_test {
namespace {

using namespace show;
using ::testing::HasSubstr;

ServerLayout layout() {
  ServerLayout layout{.name = "tiny on 3 servers", .about = "made for a test", .servers = {}};
  layout.servers = {{{"embed", 1, 3000, true}, {"layer.0", 3, 1000, false}},
                    {{"layer.0", 2, 2000, false}, {"head", 1, 2000, true}},
                    {}};
  return layout;
}

TEST(ServerLayout, TextHasBytesSharesAndCutBlocks) {
  const std::string text = text_of(layout());
  for (const char* line : {"server 0  4.0 kB, 50 %, of 4 parameters\n",
                           "  layer.0 (in part)  1.0 kB    3 parameters\n",
                           "  head               2.0 kB    1 parameter\n", "server 2  nothing"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(json_of(layout()),
              HasSubstr("\"block\":\"layer.0\",\"parameters\":2,\"bytes\":2000"));
}

TEST(ServerLayout, ItsFileMayHaveAnyName) {
  ServerLayout named = layout();
  named.name = "caf\xe9 on 3 servers";
  EXPECT_THAT(json_of(named), HasSubstr(R"("name":"caf\\xe9 on 3 servers")"));
}

TEST(ServerLayout, PicturesAreLegible) {
  expect_legible(svg_of(layout()));
  EXPECT_THAT(svg_of(layout()), HasSubstr(">nothing<"));
  const std::string page = html_of(layout());
  EXPECT_THAT(page, HasSubstr("tiny on 3 servers"));
  EXPECT_THAT(page, HasSubstr("<p hidden><button id=\"back\">"));  // there is nothing to play
}

}  // namespace
}  // namespace trireme::server_layout_test
