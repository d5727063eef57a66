#include "trireme/show/server/server_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "trireme/show/drawing/legible_test.h"

namespace trireme::server_run_test {
namespace {

using namespace show;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = ServerRun::Request::Kind;

// Two workers and one server; worker 0 waits from 2 to 5 until worker 1 pushes.
ServerRun waiting_run() {
  ServerRun run{.name = "2 workers, 1 server, staleness up to 1",
                .about = "made for a test",
                .workers = 2,
                .servers = 1,
                .shown = 8,
                .end = 10};
  run.steps = {{0, 1, 0, 1.5, 5.5}, {1, 1, 0, 4.5, 5.5}, {0, 2, 5.5, 7, 8}};
  run.requests = {{Kind::Push, 0, 1, 0, 1.5, 2, 5},
                  {Kind::Push, 1, 1, 0, 4.5, 5, 5},
                  {Kind::Push, 0, 2, 0, 7, 7.5, 7.5}};
  run.updates = {{0, 0, 2, 1, 0}, {0, 1, 5, 2, 1}, {0, 0, 7.5, 3, 1}};
  run.rates = {{"staleness up to 1", rate_of(run)}, {"synchronous", 0.2}};
  return run;
}

TEST(ServerRun, AWaitEndsWithTheRequestThatItWasFor) {
  const auto waits = waits_of(waiting_run());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].worker, 0);
  EXPECT_EQ(waits[0].step, 1);
  EXPECT_EQ(waits[0].by, 1);
  EXPECT_EQ(waits[0].begin, 2);
  EXPECT_EQ(waits[0].end, 5);
  EXPECT_EQ(waited_shares(waiting_run()), (std::vector<double>{0.3, 0}));
}

// The wait at two servers is from the first that holds the worker back to the last that lets it go.
TEST(ServerRun, AWaitAtSeveralServersIsOne) {
  ServerRun run = waiting_run();
  run.servers = 2;
  run.requests.push_back({Kind::Push, 0, 1, 1, 1.5, 1.8, 6});
  run.requests.push_back({Kind::Push, 1, 1, 1, 4.5, 6, 6});
  const auto waits = waits_of(run);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].begin, 1.8);
  EXPECT_EQ(waits[0].end, 6);
  EXPECT_EQ(waits[0].by, 1);
}

TEST(ServerRun, CountsStalenessAndSteps) {
  ServerRun run = waiting_run();
  EXPECT_EQ(staleness_of(run), (std::map<std::int64_t, std::int64_t>{{0, 1}, {1, 2}}));
  EXPECT_DOUBLE_EQ(rate_of(run), 3 / 8.0);
  run.steps[1].dropped = true;
  EXPECT_DOUBLE_EQ(rate_of(run), 2 / 8.0);
  for (ServerRun::Update& update : run.updates) update.worker = -1;
  EXPECT_TRUE(staleness_of(run).empty());
  EXPECT_THAT(footer(run), HasSubstr("all workers have the same weights"));
}

TEST(ServerRun, TextSaysWhoPushesWhenAndWhoWaits) {
  const std::string text = text_of(waiting_run());
  for (const char* line : {"1500.0 ms 0       1     1 (0)      3000.0 ms for worker 1\n",
                           "4500.0 ms 1       1     2 (1)\n", "staleness   0       33 %  ####",
                           "worker 0 30 %, worker 1 0 % of the time"})
    EXPECT_THAT(text, HasSubstr(line));
  // 80 columns for 8 s: computes until 1.5, exchanges until 2, waits until 5.
  EXPECT_THAT(text, HasSubstr("worker 0  " + std::string(15, '1') + std::string(5, '-') +
                              std::string(30, '.') + std::string(5, '-') + std::string(15, '2')));
}

// Its label is as wide as the column was.
TEST(ServerRun, AHighStalenessStandsApartFromItsShare) {
  ServerRun run = waiting_run();
  run.updates[1].staleness = 600;
  EXPECT_THAT(footer(run), HasSubstr("512-1023 33 %  ####"));
}

// With ten workers and eight servers, looking for all waits in each moment took minutes.
TEST(ServerRun, MomentsOfALongRunAreSaidAtOnce) {
  ServerRun run{.name = "long", .about = "", .workers = 10, .servers = 8, .shown = 100, .end = 100};
  for (int step = 1; step <= 100; ++step)
    for (int worker = 0; worker < run.workers; ++worker) {
      const double begin = step - 1.0, sent = begin + 0.01 * (worker + 1);
      run.steps.push_back({worker, step, begin, sent, step + 0.0});
      for (int server = 0; server < run.servers; ++server)
        run.requests.push_back({Kind::Terms, worker, step, server, sent, sent, begin + 0.1});
    }
  const std::vector<std::string> texts = moment_texts(run);
  EXPECT_EQ(texts.size(), 1 + 100 * 11u);
  EXPECT_THAT(texts[9], HasSubstr("worker 0 waits for worker 9"));
}

// Large models take seconds a step, small ones microseconds.
TEST(ServerRun, SlowAndFastStepsHaveFigures) {
  const auto scaled = [](double by) {
    ServerRun run = waiting_run();
    for (double* time : {&run.shown, &run.end}) *time *= by;
    for (ServerRun::Step& step : run.steps)
      for (double* time : {&step.begin, &step.sent, &step.end}) *time *= by;
    for (ServerRun::Request& request : run.requests)
      for (double* time : {&request.sent, &request.arrived, &request.answered}) *time *= by;
    for (ServerRun::Update& update : run.updates) update.time *= by;
    run.rates = {{"staleness up to 1", rate_of(run)}};
    return run;
  };
  const std::string slow = text_of(scaled(10));
  EXPECT_THAT(slow, HasSubstr("\n15000.0 ms 0       1 "));
  EXPECT_THAT(slow, HasSubstr("staleness up to 1 0.0375 steps a second"));
  EXPECT_THAT(svg_of(scaled(10)), HasSubstr(">0.0375<"));
  EXPECT_THAT(text_of(scaled(1e-5)), HasSubstr("0.1 ms, of which 0.08 are drawn"));
  EXPECT_THAT(svg_of(scaled(1e-5)), HasSubstr(">0.08 ms<"));
  EXPECT_THAT(text_of(waiting_run()), HasSubstr("10,000 ms, of which 8,000 are drawn"));
}

TEST(ServerRun, AMomentSaysWhatEachDoes) {
  const ServerRun run = waiting_run();
  EXPECT_EQ(moment_text(run, 3),
            "3000.0 ms: worker 0 waits for worker 1, worker 1 computes step 1; server 0 has "
            "version 1");
  EXPECT_THAT(moment_text(run, 5.2),
              HasSubstr("worker 1 exchanges step 1; server 0 has version 2"));
  EXPECT_EQ(moments(run), (std::vector<double>{0, 1.5, 2, 4.5, 5, 5.5, 7, 7.5, 8}));
  EXPECT_THAT(moment_text(run, 9), HasSubstr("worker 0 has ended, worker 1 has ended"));
  ServerRun late = run;
  late.steps[1].begin = 1;
  EXPECT_THAT(moment_text(late, 0), HasSubstr("worker 1 has not begun step 1; server 0"));
}

TEST(ServerRun, PicturesAreLegibleAndShowWaits) {
  ServerRun run = waiting_run();
  const std::string svg = svg_of(run);
  expect_legible(svg);
  EXPECT_THAT(svg, HasSubstr(">waits for worker 1<"));
  EXPECT_THAT(svg, HasSubstr(">synchronous<"));
  EXPECT_THAT(svg, Not(HasSubstr("too late")));
  run.steps[2].dropped = true;
  EXPECT_THAT(svg_of(run), HasSubstr("step 2, too late"));
  EXPECT_THAT(html_of(run), HasSubstr("data-since"));
}

TEST(ServerRun, JsonHasEveryStepPushAndUpdate) {
  std::istringstream lines(json_of(waiting_run()));
  std::map<std::string, int> counts;
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    ++counts[last.at("event")];
  }
  EXPECT_EQ(counts, (std::map<std::string, int>{
                        {"show", 1}, {"step", 3}, {"push", 3}, {"update", 3}, {"summary", 1}}));
  EXPECT_EQ(last["staleness"], nlohmann::json({{"0", 1}, {"1", 2}}));
}

}  // namespace
}  // namespace trireme::server_run_test
