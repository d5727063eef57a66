#include "trireme/observe/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using observe::Lane;
using observe::RankTrace;
using observe::Trace;

TimePoint at(std::int64_t ns) { return TimePoint(Duration(ns)); }

TEST(Trace, KeepsTheNewestSpansAndCountsTheLost) {
  Trace trace(4);
  const auto lane = trace.lane("work");
  for (int i = 0; i < 10; ++i) trace.span(lane, "step " + std::to_string(i), at(i), at(i + 1));
  const RankTrace collected = trace.collect();
  ASSERT_EQ(collected.spans.size(), 4u);
  EXPECT_EQ(collected.lost, 6u);
  for (int i = 0; i < 4; ++i) {
    const auto& span = collected.spans[static_cast<std::size_t>(i)];
    EXPECT_EQ(span.begin, 6 + i);
    EXPECT_EQ(collected.names[span.name], "step " + std::to_string(6 + i));
  }
}

TEST(Trace, ALaneHasOneNumber) {
  Trace trace;
  EXPECT_EQ(trace.lane("a"), 0u);
  EXPECT_EQ(trace.lane("b", Lane::Overlapping), 1u);
  EXPECT_EQ(trace.lane("a"), 0u);
}

RankTrace sample(int rank, std::int64_t offset) {
  Trace trace;
  const auto work = trace.lane("compute");
  const auto queue = trace.lane("queued", Lane::Overlapping);
  trace.span(work, "forward", at(1500 - offset), at(2500 - offset));
  trace.span(work, "step \"0\"", at(1500 - offset), at(9000 - offset));
  trace.span(queue, "all_reduce", at(1600 - offset), at(4000 - offset), 4096);
  trace.span(queue, "all_reduce", at(1700 - offset), at(3000 - offset), 64);
  RankTrace collected = trace.collect();
  collected.rank = rank;
  collected.host = "here";
  collected.clock_offset = offset;
  return collected;
}

TEST(Trace, CrossesProcessesAsBytes) {
  const RankTrace trace = sample(3, 77);
  const std::string bytes = trace.to_bytes();
  const RankTrace back = RankTrace::from_bytes(bytes);
  EXPECT_EQ(back.to_bytes(), bytes);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.spans.size(), 4u);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(RankTrace::from_bytes(bytes.substr(0, length)), MismatchError) << length;
  EXPECT_THROW(RankTrace::from_bytes(bytes + "x"), MismatchError);
}

TEST(Trace, TheDocumentIsWhatChromeAndPerfettoRead) {
  const std::vector<RankTrace> traces = {sample(0, 0), sample(1, 1000000)};
  const auto document = nlohmann::json::parse(observe::chrome_json(traces));
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, int> open;  // (pid, id) of overlapping spans
  int complete = 0;
  for (const auto& event : document["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "M") {
      if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
      continue;
    }
    EXPECT_GE(event["ts"].get<double>(), 0.0);
    if (phase == "X") {
      ++complete;
      // Both ranks' times are on one clock.
      EXPECT_EQ(event["ts"].get<double>(), 0.0);
      EXPECT_EQ(event["dur"].get<double>(), event["name"] == "forward" ? 1.0 : 7.5);
    } else {
      open[{event["pid"], event["id"]}] += phase == "b" ? 1 : -1;
      if (phase == "b") {
        EXPECT_GT(event["args"]["bytes"].get<int>(), 0);
      }
    }
  }
  EXPECT_EQ(complete, 4);
  EXPECT_EQ(open.size(), 4u);
  for (const auto& [key, balance] : open) EXPECT_EQ(balance, 0);
  EXPECT_EQ(processes[1], "rank 1 on here");
  EXPECT_EQ(document["otherData"]["ranks"][1]["clock_offset_ns"], 1000000);
}

TEST(Trace, SpansOfOneGroupNestInTheDocument) {
  Trace trace;
  const auto lane = trace.lane("messages", Lane::Overlapping);
  for (const int start : {0, 4}) {  // the second begins before the first has ended
    const std::uint16_t group = trace.new_group();
    trace.span(lane, "send", at(start), at(start + 10), 8, group);
    trace.span(lane, "waiting", at(start), at(start + 6), 0, group);
    trace.span(lane, "transferring", at(start + 6), at(start + 10), 0, group);
  }
  const auto document = nlohmann::json::parse(observe::chrome_json(std::vector{trace.collect()}));
  std::map<int, std::string> seen;  // by id, in the order of the file
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == "M") continue;
    seen[event["id"]] += event["ph"].get<std::string>() + event["name"].get<std::string>()[0] + " ";
  }
  ASSERT_EQ(seen.size(), 2u);
  for (const auto& [id, order] : seen) EXPECT_EQ(order, "bs bw ew bt et es ");
}

TEST(Trace, GroupNumbersComeAgainButNeverZero) {
  Trace trace;
  for (int i = 1; i <= 65535; ++i) ASSERT_EQ(trace.new_group(), i);
  EXPECT_EQ(trace.new_group(), 1);
}

}  // namespace
}  // namespace trireme
