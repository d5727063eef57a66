// What `trireme show` prints for 2, 3, 4, 5 and 8 ranks, to the letter. After a change that is
// meant: tools/update_pictures, and look at the difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/plan/link.h"
#include "trireme/show/collective.h"
#include "trireme/show/cost.h"
#include "trireme/show/recording.h"
#include "trireme/show/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace show;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Goldens, AreWhatIsRecorded) {
  const bool update = std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr;
  std::size_t compared = 0;
  for (comm::OpKind kind : drawn_kinds()) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      for (int ranks : {2, 3, 4, 5, 8}) {
        const std::string name =
            title_of(kind) + "-" + entry->name + "-" + std::to_string(ranks) + ".txt";
        const fs::path path = fs::path(GOLDEN_FOLDER) / name;
        const Recording recording = record({.kind = kind,
                                            .algorithm = entry->name,
                                            .ranks = ranks,
                                            .hosts = entry->name == "hierarchical" ? 2 : 1});
        const std::string text = text_of(recording, plan::kDefaultLink, 1 << 20);
        if (update) std::ofstream(path) << text;
        if (!fs::exists(path)) continue;
        EXPECT_EQ(read(path), text) << name;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 25u);
}

}  // namespace
}  // namespace trireme
