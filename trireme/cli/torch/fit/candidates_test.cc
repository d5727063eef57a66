#include "trireme/cli/torch/fit/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/observe/machine.h"

namespace trireme::cli {
namespace {

// Two ranks for each core of this host, one of which is here: the others leave it all cores.
TEST(FitCandidates, LanesTakeTheCoresOfTheRanksOfThisHost) {
  const int cores = observe::usable_cores().usable, ranks = 2 * cores;
  const config::Config config =
      train::read_config("", [](const char*) { return nullptr; },
                         {"batch.micro=1", "batch.global=" + std::to_string(2 * ranks)});
  input::Corpus corpus;
  corpus.train = corpus.validation = std::string(10'000, 'a');
  const auto candidates =
      fit_candidates(config, train::Settings(config), corpus,
                     {.ranks = ranks, .ranks_here = 1, .limit = std::int64_t{1} << 40}, 1);
  int most = 0;
  for (const FitCandidate& one : candidates) most = std::max(most, one.lanes);
  EXPECT_EQ(most, std::min(cores, 2));
}

}  // namespace
}  // namespace trireme::cli
