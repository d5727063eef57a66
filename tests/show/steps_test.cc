// The records of `trireme show overlap | zero1 | tensor | context | expert`, against the promises
// of each and the golden files (written by tools/update_pictures).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/cli/torch/show/recorded_steps.h"
#include "trireme/show/drawing/legible_test.h"

namespace trireme::steps_test {
namespace {

namespace fs = std::filesystem;
using show::RecordedStep;
using show::StepSpan;
using show::StepTimeline;
using ::testing::Contains;
using ::testing::HasSubstr;
using Kind = StepSpan::Kind;

void compare(const fs::path& path, const std::string& text) {
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "tools/update_pictures writes " << path;
  std::ostringstream is;
  is << file.rdbuf();
  EXPECT_EQ(is.str(), text) << path;
}

std::vector<StepSpan> spans_of(const StepTimeline& timeline, int rank, Kind kind,
                               const std::string& part = "") {
  std::vector<StepSpan> found;
  for (const show::StepLane& lane : timeline.ranks[static_cast<std::size_t>(rank)])
    for (const StepSpan& span : lane.spans)
      if (span.kind == kind && span.name.find(part) != std::string::npos) found.push_back(span);
  return found;
}

double end_of(const std::vector<StepSpan>& spans) {
  double end = 0;
  for (const StepSpan& span : spans) end = std::max(end, span.end);
  return end;
}

double begin_of(const std::vector<StepSpan>& spans) {
  double begin = 1e9;
  for (const StepSpan& span : spans) begin = std::min(begin, span.begin);
  return begin;
}

TEST(ShowSteps, OverlapReducesWhileBackwardRuns) {
  for (const int ranks : {2, 3, 4}) {
    const RecordedStep step = cli::record_overlap(ranks);
    ASSERT_EQ(step.timelines.size(), 2u);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const StepTimeline& timeline : step.timelines) {
        EXPECT_EQ(spans_of(timeline, rank, Kind::Forward).size(), 4u);
        EXPECT_EQ(spans_of(timeline, rank, Kind::Backward).size(), 4u);
        EXPECT_EQ(spans_of(timeline, rank, Kind::Transfer, "bucket").size(), 4u);
      }
      const auto backward = [&](int i) {
        return end_of(spans_of(step.timelines[static_cast<std::size_t>(i)], rank, Kind::Backward));
      };
      EXPECT_LT(begin_of(spans_of(step.timelines[0], rank, Kind::Transfer, "bucket")), backward(0));
      EXPECT_GE(begin_of(spans_of(step.timelines[1], rank, Kind::Transfer, "bucket")), backward(1));
    }
    EXPECT_LT(step.timelines[0].end(), step.timelines[1].end());
    EXPECT_THAT(step.notes, Contains("both end with the same bits of all weights"));
  }
}

TEST(ShowSteps, Zero1GathersWeightsBehindTheUpdateAndSharesItsState) {
  const RecordedStep one = cli::record_zero1(2), two = cli::record_zero1(4);
  const auto state = [](const RecordedStep& step, std::size_t rank) {
    return std::stod(step.tables.at(0).rows.at(2).second.at(rank).text);
  };
  EXPECT_NEAR(state(one, 0), state(one, 1), 0.02 * state(one, 0));
  EXPECT_NEAR(state(one, 0), 2 * state(two, 0), 0.02 * state(one, 0));
  for (int rank = 0; rank < 2; ++rank) {
    const auto update = spans_of(one.timelines[0], rank, Kind::Update);
    ASSERT_EQ(update.size(), 1u);
    EXPECT_GE(update[0].begin, end_of(spans_of(one.timelines[0], rank, Kind::Backward)));
    EXPECT_GT(end_of(spans_of(one.timelines[0], rank, Kind::Transfer)), update[0].begin);
  }
}

TEST(ShowSteps, TensorRanksHaveTheirPartsAndSumOnceAPairOfBlocks) {
  const RecordedStep step = cli::record_tensor(2);
  const auto& rows = step.tables.at(0).rows;
  const auto row = [&](const std::string& name) {
    for (const auto& one : rows)
      if (one.first == name) return one.second;
    ADD_FAILURE() << name;
    return rows.front().second;
  };
  EXPECT_EQ(row("layer.0.linear.weight")[0].text, "outputs 0-95 of 192");
  EXPECT_EQ(row("layer.0.linear.weight")[1].text, "outputs 96-191 of 192");
  EXPECT_EQ(row("layer.1.linear.weight")[1].text, "inputs 96-191 of 192");
  EXPECT_EQ(row("layer.1.linear.bias")[0].text, "all");
  // Forward: after blocks 1 and 3. Backward: before block 2; block 0's input has no gradient.
  EXPECT_GE(spans_of(step.timelines[0], 0, Kind::Transfer, "tensor parallel").size(), 3u);
}

TEST(ShowSteps, QueriesMeetAllKeysBeforeThemOnceEachAndRanksHaveAsMuchToDo) {
  for (const int ranks : {2, 3, 4}) {
    const RecordedStep step = cli::record_context(ranks);
    const auto& rows = step.tables.at(0).rows;
    for (std::size_t query = 0; query < rows.size(); ++query)
      for (std::size_t key = 0; key < rows.size(); ++key)
        EXPECT_EQ(rows[query].second[key].text.empty(), key > query) << query << " " << key;
    const auto cost = [&](int rank) {
      double sum = 0;
      for (const StepSpan& span : spans_of(step.timelines[0], rank, Kind::Forward))
        sum += span.end - span.begin;
      return sum;
    };
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(spans_of(step.timelines[0], rank, Kind::Forward).size(),
                static_cast<std::size_t>(ranks));
      EXPECT_NEAR(cost(rank), cost(0), 1e-9);
    }
  }
}

TEST(ShowSteps, TokensThatHaveAPlaceTravelThereAndBack) {
  for (const int ranks : {2, 4}) {
    const RecordedStep step = cli::record_expert(ranks);
    int sent = 0, computed = 0;
    for (const auto& row : step.tables.at(0).rows)
      for (const auto& cell : row.second) sent += cell.text.empty() ? 0 : std::stoi(cell.text);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto forward = spans_of(step.timelines[0], rank, Kind::Forward);
      ASSERT_EQ(forward.size(), 1u);
      computed += std::stoi(forward[0].name.substr(2));
      // To the experts and back, in forward and backward; an exchange is two spans, header and
      // data.
      EXPECT_EQ(spans_of(step.timelines[0], rank, Kind::Transfer, "experts").size(), 2 * 4u);
    }
    EXPECT_EQ(sent, computed);
    const int dropped = std::stoi(step.notes.at(0));
    EXPECT_EQ(sent + dropped, 16 * ranks);
  }
}

TEST(ShowSteps, RefuseWhatTheyCannotDraw) {
  for (const auto record : {cli::record_overlap, cli::record_zero1, cli::record_tensor,
                            cli::record_context, cli::record_expert}) {
    EXPECT_THROW(record(1), ConfigError);
    EXPECT_THROW(record(9), ConfigError);
  }
}

// Equal in every run, because times are the virtual clock's.
TEST(ShowSteps, PrintTheGoldens) {
  const std::vector<std::pair<const char*, RecordedStep (*)(int)>> records = {
      {"overlap", cli::record_overlap},
      {"zero1", cli::record_zero1},
      {"tensor", cli::record_tensor},
      {"context", cli::record_context},
      {"expert", cli::record_expert}};
  for (const auto& [name, record] : records) {
    const RecordedStep step = record(2);
    compare(fs::path(GOLDEN_FOLDER) / (std::string(name) + "-2.txt"), show::text_of(step));
    compare(fs::path(PICTURE_FOLDER) / (std::string(name) + ".svg"), show::svg_of(step));
    expect_legible(show::svg_of(step));
    expect_legible(show::svg_of(record(4)));
    EXPECT_THAT(show::html_of(step), HasSubstr("data-since"));
  }
}

}  // namespace
}  // namespace trireme::steps_test
