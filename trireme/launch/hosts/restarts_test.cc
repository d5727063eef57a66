// Hosts on which processes are started again and again.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/base/waiter/in_context.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/launch/hosts/local_host.h"
#include "trireme/launch/hosts/remote_host.h"

namespace trireme::launch::restarts_test {
namespace {

using std::chrono::seconds;

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// A test destroys the waiter before its host.
struct RestartsTest : ::testing::Test {
  RestartsTest() { outlive_readers(); }
  ~RestartsTest() override { unsetenv("TRIREME_SSH"); }
  HostEvents events() {
    return {.on_line = [](int, bool, std::string_view) {},
            .on_start = {},
            .on_end =
                [this](int, const Ending& ending) {
                  not_reached = ending.host == HostLoss::NotReached;
                  ++ended;
                  waiter->wake();
                }};
  }
  bool await(const std::function<bool()>& ready) {
    return waiter->wait_until(ready, waiter->now() + seconds(30));
  }

  Guard guard;
  std::atomic<int> ended{0};
  std::atomic<bool> not_reached{false};
  std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
};

TEST_F(RestartsTest, KeepNoDescriptorsOfEarlierProcesses) {
  LocalHost host(*waiter, guard, {.secret = std::string(32, 's'), .bind = Bind::None}, events());
  std::ptrdiff_t first = 0;
  for (int starts = 1; starts <= 5; ++starts) {
    in_context(waiter, [&] { host.start(0, {.command = {"true"}}); });
    EXPECT_TRUE(await([&] { return ended == starts && host.output_finished(0); }));
    if (starts == 1) first = open_descriptors();
  }
  EXPECT_TRUE(await([&] { return open_descriptors() <= first; })) << open_descriptors() - first;
  waiter.reset();
}

// At the second try ssh cannot be started here.
TEST_F(RestartsTest, TryAHostAnewThatCouldNotBeTried) {
  setenv("TRIREME_SSH", "false", 1);
  RemoteHost host(*waiter, guard, {.name = "host", .agent = {"agent"}}, events());
  const auto start = [&] { in_context(waiter, [&] { host.start(0, {.command = {"program"}}); }); };
  EXPECT_TRUE(await([&] { return host.ended(); }));
  setenv("TRIREME_SSH", "/no/such/program", 1);
  EXPECT_THROW(start(), ConfigError);
  EXPECT_EQ(ended, 0) << "the error says it";
  setenv("TRIREME_SSH", "false", 1);
  start();
  EXPECT_TRUE(await([&] { return ended == 1; }));
  EXPECT_TRUE(not_reached);
  waiter.reset();
}

// As one whose file system hangs: ssh connects, and nothing answers.
TEST_F(RestartsTest, GiveAHostUpThatDoesNotAnswerAtAnotherTry) {
  const std::string hanging = ::testing::TempDir() + "/hanging-ssh." + std::to_string(getpid());
  std::ofstream(hanging) << "#!/bin/sh\nexec sleep 60\n";
  std::filesystem::permissions(hanging, std::filesystem::perms(0700));
  setenv("TRIREME_SSH", "false", 1);
  RemoteHost host(*waiter, guard,
                  {.name = "host", .agent = {"agent"}, .patience = std::chrono::milliseconds(50)},
                  events());
  EXPECT_TRUE(await([&] { return host.ended(); }));
  setenv("TRIREME_SSH", hanging.c_str(), 1);
  in_context(waiter, [&] { host.start(0, {.command = {"program"}}); });
  EXPECT_TRUE(await([&] { return ended == 1; }));
  EXPECT_TRUE(not_reached);
  waiter.reset();
  std::filesystem::remove(hanging);
}

}  // namespace
}  // namespace trireme::launch::restarts_test
