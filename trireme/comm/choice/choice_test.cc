#include "trireme/comm/choice/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/choice/cost.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr OpKind kKind = OpKind::AllReduce;

// Alpha (per message) decides for small buffers, beta (per byte) for large ones.
TEST(Choice, FormulaTakesFewRoundsForLittleAndFewBytesForMuch) {
  const Chooser chooser({.size = 8, .transport = "tcp"});
  const auto shape = [](const std::string& name) {
    return shape_of(*find_algorithm(kKind, name), 8, 8);
  };
  const auto small = shape(chooser.choose(kKind, 8, 8)),
             large = shape(chooser.choose(kKind, 64 << 20, 8));
  for (const AlgorithmEntry* entry : algorithms_of(kKind)) {
    if (!ships(*entry)) continue;
    EXPECT_LE(small.seconds(plan::typical_link("tcp"), 8),
              shape(entry->name).seconds(plan::typical_link("tcp"), 8));
    EXPECT_LE(large.seconds(plan::typical_link("tcp"), 64 << 20),
              shape(entry->name).seconds(plan::typical_link("tcp"), 64 << 20));
  }
  EXPECT_LT(large.sent, small.sent);
}

TEST(Choice, SharedMemoryGoesFirstUntilMeasuredOtherwise) {
  Chooser::Group group{.size = 2, .transport = "shm", .can_map = true};
  EXPECT_EQ(Chooser(group).choose(kKind, 1 << 20, 2), "direct");
  auto tuning = std::make_shared<plan::Tuning>();
  tuning->add({"all_reduce", "direct", "shm", 2, 1 << 20, 1e-3});
  tuning->add({"all_reduce", "ring", "shm", 2, 1 << 20, 5e-4});
  group.tuning = tuning;
  EXPECT_EQ(Chooser(group).choose(kKind, 1 << 20, 2), "ring");
}

TEST(Choice, OnesOwnTakesPartOnceItWasMeasured) {
  register_all_reduce("choice_own", find_algorithm(kKind, "naive")->generator);
  Chooser::Group group{.size = 3, .transport = "tcp"};
  for (const Candidate& one : Chooser(group).candidates(kKind, 1 << 10, 3)) {
    EXPECT_NE(one.algorithm, "choice_own");
  }
  auto tuning = std::make_shared<plan::Tuning>();
  tuning->add({"all_reduce", "choice_own", "tcp", 3, 1 << 10, 1e-9});
  group.tuning = tuning;
  EXPECT_EQ(Chooser(group).choose(kKind, 1 << 10, 3), "choice_own");
}

TEST(Choice, DoesNotDependOnTheChoiceBefore) {
  for (const std::size_t bytes : {8u, 4096u, 1u << 20}) {
    const Chooser used({.size = 8, .transport = "tcp"}), fresh({.size = 8, .transport = "tcp"});
    const std::string one = used.choose(kKind, bytes, 1), all = used.choose(kKind, bytes, 8);
    EXPECT_EQ(all, fresh.choose(kKind, bytes, 8));
    EXPECT_EQ(one, fresh.choose(kKind, bytes, 1));
  }
}

TEST(Choice, SizesWithinAPowerOfTwoChooseAlike) {
  const Chooser chooser({.size = 5, .transport = "tcp"});
  EXPECT_EQ(&chooser.choose(kKind, 4097, 5), &chooser.choose(kKind, 8000, 5));
  EXPECT_EQ(chooser.choose(kKind, 4097, 5), chooser.choose(kKind, 4097, 5));
  EXPECT_FALSE(chooser.choose(kKind, 0, 5).empty());
}

// Ranks that make the same calls in another order must choose alike, or they fail with a mismatch.
TEST(Choice, DoesNotDependOnTheOrderOfTheCalls) {
  for (const int size : {2, 3, 4, 6, 8}) {
    for (int width = 0; width < 28; ++width) {
      const Chooser one({.size = size, .transport = "tcp"}),
          other({.size = size, .transport = "tcp"});
      const std::size_t exact = std::size_t{1} << width, more = exact + 1;
      const auto total = static_cast<std::uint32_t>(size);
      const std::string exact_first = one.choose(kKind, exact, total);
      const std::string more_first = other.choose(kKind, more, total);
      EXPECT_EQ(one.choose(kKind, more, total), more_first) << size << " ranks, " << more;
      EXPECT_EQ(other.choose(kKind, exact, total), exact_first) << size << " ranks, " << exact;
    }
  }
}

// Partial sums of 16-bit floats are sent as fp32, so algorithms that send none are faster.
TEST(Choice, SixteenBitSumsTakeWhatSendsNoPartialSums) {
  const std::size_t bytes = 64 << 20;
  const auto partial = [](const std::string& name) {
    const AlgorithmEntry& entry = *find_algorithm(kKind, name);
    const auto routes = resolve(name, record(name, entry.generator, 8), layout_of(kKind, 8, 8, 0));
    return shape_of(routes, 2).sent > shape_of(routes, 1).sent;
  };
  const Chooser formula({.size = 8, .transport = "tcp"});
  EXPECT_FALSE(partial(formula.choose(kKind, bytes, 8, true)));
  EXPECT_TRUE(partial("ring"));

  auto tuning = std::make_shared<plan::Tuning>();
  tuning->links["tcp"] = {1e-5, 1e-9, 1e-10};
  tuning->add({"all_reduce", "ring", "tcp", 8, bytes, 0.20});
  tuning->add({"all_reduce", "all_pairs", "tcp", 8, bytes, 0.21});
  const Chooser measured({.size = 8, .transport = "tcp", .tuning = tuning});
  EXPECT_EQ(measured.choose(kKind, bytes, 8), "ring");
  EXPECT_EQ(measured.choose(kKind, bytes, 8, true), "all_pairs");
}

TEST(Choice, SaysWhy) {
  auto tuning = std::make_shared<plan::Tuning>();
  tuning->machine = "a test";
  tuning->links["tcp"] = {1e-5, 1e-9, 1e-10};
  tuning->add({"all_reduce", "ring", "tcp", 4, 1 << 20, 1e-9});
  const Chooser chooser({.size = 4, .transport = "tcp", .tuning = tuning});
  EXPECT_THAT(
      chooser.explain(kKind, 1 << 20, 4),
      AllOf(HasSubstr("all_reduce of 1 MiB on 4 ranks over tcp: ring ("),
            HasSubstr("measured); then "), HasSubstr("naive ("), HasSubstr("by the formula"),
            HasSubstr("alpha 10 us"), HasSubstr("measured on a test")));
}

}  // namespace
}  // namespace trireme::inline v0::comm
