// Collectives as spans: what one call leaves in the trace, how the ranks' traces come together, and
// that foreign clocks are measured. On the simulated network's virtual clock, so times are exact.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/gather_trace.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using observe::RankTrace;
using observe::TraceSpan;
using testing::RankContext;
using testing::run_ranks;

constexpr Duration kLate = std::chrono::milliseconds(5);

struct Named {
  std::string lane, name;
  TraceSpan span;
};

std::vector<Named> named(const RankTrace& trace) {
  std::vector<Named> all;
  for (const TraceSpan& span : trace.spans)
    all.push_back({trace.lanes[span.lane].first, trace.names[span.name], span});
  return all;
}

// The spans of `name` on the lane, in the order of their beginning.
std::vector<TraceSpan> find(const RankTrace& trace, const std::string& lane,
                            const std::string& name) {
  std::vector<TraceSpan> found;
  for (const Named& one : named(trace))
    if (one.lane == lane && one.name == name) found.push_back(one.span);
  return found;
}

bool inside(const TraceSpan& inner, const TraceSpan& outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// Two calls at once, the last rank comes late.
RankTrace traced_run(RankContext& rank, const std::string& algorithm) {
  const auto trace = std::make_shared<observe::Trace>();
  Communicator world(rank.transport, {.name = "world", .algorithm = algorithm, .trace = trace});
  std::vector<float> large(100000, 1), small(1, 1);
  if (rank.rank == rank.size - 1) rank.waiter->sleep(kLate);
  const Work works[] = {world.all_reduce(buffer_of(large), Sum, {.label = "large"}),
                        world.all_reduce(buffer_of(small), Sum, {.label = "small"})};
  Work::all(works).wait();
  RankTrace own = trace->collect();
  own.rank = rank.rank;
  const std::vector<RankTrace> all = gather_traces(world, own);
  EXPECT_EQ(all.size(), rank.rank == 0 ? static_cast<std::size_t>(rank.size) : 0u);
  for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r].rank, static_cast<int>(r));
  barrier(world);
  return own;
}

TEST(Trace, ACollectiveIsQueuedWaitsTransfersAndReduces) {
  for (const char* algorithm : {"direct", "ring", "naive"}) {
    for (int size : {2, 3, 5}) {
      run_ranks(size, [&](RankContext& rank) {
        SCOPED_TRACE(std::string(algorithm) + ", rank " + std::to_string(rank.rank));
        const RankTrace trace = traced_run(rank, algorithm);
        const auto large = find(trace, "communication world", "all_reduce large");
        const auto small = find(trace, "communication world", "all_reduce small");
        ASSERT_EQ(large.size(), 1u);
        ASSERT_EQ(small.size(), 1u);
        EXPECT_EQ(large[0].bytes, 400000u);
        EXPECT_GE(small[0].begin, large[0].end);  // one at a time
        // Those who came first waited for the last one, and their second call in the queue.
        const auto waiting = find(trace, "communication world", "waiting for peers");
        if (rank.rank < size - 1) {
          const auto queued = find(trace, "queued world", "all_reduce small");
          ASSERT_EQ(queued.size(), 1u);
          EXPECT_EQ(queued[0].end, small[0].begin);
          ASSERT_FALSE(waiting.empty());
          EXPECT_GT(waiting[0].end - waiting[0].begin, kLate.count() / 2);
          EXPECT_TRUE(inside(waiting[0], large[0]));
        }
        const auto transferring = find(trace, "communication world", "transferring");
        ASSERT_FALSE(transferring.empty());
        EXPECT_EQ(transferring[0].end, large[0].end);
        const auto reducing = find(trace, "communication world", "reducing");
        ASSERT_FALSE(reducing.empty());
        for (const TraceSpan& one : reducing) EXPECT_TRUE(inside(one, transferring[0]));
      });
    }
  }
}

TEST(Trace, NestedLanesNest) {
  run_ranks(3, [](RankContext& rank) {
    const RankTrace trace = traced_run(rank, "ring");
    std::vector<TraceSpan> open;
    for (const TraceSpan& span : trace.spans) {
      if (trace.lanes[span.lane].second == observe::Lane::Overlapping) continue;
      while (!open.empty() && open.back().end <= span.begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_TRUE(inside(span, open.back()));
      }
      open.push_back(span);
    }
  });
}

TEST(Trace, ForeignClocksAreMeasured) {
  for (int size : {2, 3, 5}) {
    run_ranks(size, [&](RankContext& rank) {
      const std::int64_t wrong = 1000000007LL * rank.rank;
      const auto clock = [&] { return rank.waiter->now().time_since_epoch().count() + wrong; };
      const ClockOffset offset = measure_clock(*rank.world, "", clock);
      EXPECT_LE(std::abs(offset.nanoseconds + wrong), offset.error);
      EXPECT_LT(offset.error, 100000);
      // Ranks of one host have one clock: nothing is sent.
      EXPECT_EQ(measure_clock(*rank.world, "here", clock).nanoseconds, 0);
      barrier(*rank.world);
    });
  }
}

}  // namespace
}  // namespace trireme::comm
