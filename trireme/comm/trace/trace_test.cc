// Tests of traces: the spans of a call, gathering the ranks' traces, measuring clocks. They use the
// simulated network's virtual clock, so times are exact.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/trace/gather_trace.h"
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

// The spans of `name` on the lane, in the order of the trace.
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

// Submits two calls at once; the last rank comes late.
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
        // The first call waited for the last rank, and the second call waited in the queue.
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

TEST(Trace, TheStepsOfACallThatIsAloneAreNotQueued) {
  run_ranks(3, [](RankContext& rank) {
    const auto trace = std::make_shared<observe::Trace>();
    Communicator world(rank.transport, {.name = "world", .trace = trace});
    SparseRows rows{.width = 1000, .num_rows = 50, .dtype = DType::F32};
    rows.indices = {rank.rank};
    rows.values.resize(1000 * sizeof(float));
    barrier(world);  // the first call waits for the set-up of shared memory
    sparse_all_reduce(world, rows, Sum);
    EXPECT_TRUE(find(trace->collect(), "queued world", "sparse_all_reduce").empty());
    barrier(world);
  });
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

// Rank 0 sends three messages, small and large, at once; rank 1 comes late.
TEST(Trace, MessagesAreQueuedWaitAndTransfer) {
  constexpr std::size_t kCounts[] = {1, 300000, 64};
  run_ranks(2, [&](RankContext& rank) {
    const auto trace = std::make_shared<observe::Trace>();
    Communicator world(rank.transport, {.name = "world", .trace = trace});
    std::vector<std::vector<float>> data;
    for (const std::size_t count : kCounts) data.emplace_back(count, 1.f);
    const TimePoint start = rank.waiter->now();
    if (rank.rank == 1) rank.waiter->sleep(kLate);
    std::vector<Work> works;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto tag = static_cast<std::uint32_t>(i);
      const std::string label = "part " + std::to_string(i);
      const OpOptions how{.label = label};
      works.push_back(rank.rank == 0 ? world.send(buffer_of(data[i]), 1, tag, how)
                                     : world.recv(buffer_of(data[i]), 0, tag, how));
    }
    Work::all(works).wait();
    const RankTrace own = trace->collect();
    std::set<std::uint16_t> groups;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::string title =
          (rank.rank == 0 ? "send to 1 part " : "recv from 0 part ") + std::to_string(i);
      const auto whole = find(own, "messages world", title);
      ASSERT_EQ(whole.size(), 1u) << title;
      EXPECT_EQ(whole[0].bytes, kCounts[i] * sizeof(float));
      EXPECT_TRUE(groups.insert(whole[0].group).second);
      const auto part = [&](const char* name) {
        std::int64_t length = 0;
        for (const TraceSpan& span : find(own, "messages world", name)) {
          if (span.group != whole[0].group) continue;
          EXPECT_TRUE(inside(span, whole[0]));
          length += span.end - span.begin;
        }
        return length;
      };
      const std::int64_t all = part("queued") + part("waiting for the peer") + part("transferring");
      EXPECT_EQ(all, whole[0].end - whole[0].begin) << title;
      // The large send cannot end before its receive is posted.
      if (i == 1) {
        EXPECT_GE(TimePoint(Duration(whole[0].end)), start + kLate);
        if (rank.rank == 0) {
          EXPECT_GT(part("transferring"), kLate.count() / 2);
        }
      }
    }
    barrier(*rank.world);
  });
}

TEST(Trace, AnEarlyReceiverWaitsForThePeer) {
  run_ranks(3, [&](RankContext& rank) {
    const auto trace = std::make_shared<observe::Trace>();
    Communicator world(rank.transport, {.name = "world", .trace = trace});
    const auto group = world.split(rank.rank == 0 ? 0 : 1, 0);
    float value = 0;
    const Buffer one = Buffer::of(std::span(&value, 1));
    if (rank.rank == 2) {
      rank.waiter->sleep(kLate);
      group->send(one, 0).wait();
    }
    if (rank.rank == 1) {
      group->recv(one, 1).wait();
      const RankTrace own = trace->collect();
      std::vector<TraceSpan> waiting;
      for (const Named& span : named(own)) {
        if (span.name == "waiting for the peer") waiting.push_back(span.span);
        if (span.lane.starts_with("messages") && span.span.bytes > 0) {
          EXPECT_EQ(span.name, "recv from 2");  // names the world's ranks
        }
      }
      ASSERT_EQ(waiting.size(), 1u);
      EXPECT_GT(waiting[0].end - waiting[0].begin, kLate.count() / 2);
    }
    barrier(*rank.world);
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
      // Ranks with equal names share a clock, which is not measured.
      EXPECT_EQ(measure_clock(*rank.world, "here", clock).nanoseconds, 0);
      barrier(*rank.world);
    });
  }
}

}  // namespace
}  // namespace trireme::comm
