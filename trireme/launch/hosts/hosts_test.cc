// Lists of hosts, and which process runs where.
#include "trireme/launch/hosts/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/launch/hosts/host_messages.h"
#include "trireme/launch/hosts/job_hosts.h"
#include "trireme/launch/launch.h"
#include "trireme/observe/machine.h"

namespace trireme::launch::hosts_test {
namespace {

using rendezvous::Roles;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <class F>
std::string refusal_of(F&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class Hostfile {
 public:
  explicit Hostfile(const std::string& text)
      : path_(::testing::TempDir() + "trireme-hosts-" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~Hostfile() { std::remove(path_.c_str()); }
  std::vector<HostSlots> read() const { return read_hostfile(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(Hosts, AListHasNamesAndSlots) {
  EXPECT_THAT(
      parse_hosts("node07:4,node08,me@10.0.0.9:2"),
      ElementsAre(HostSlots{"node07", 4}, HostSlots{"node08", 1}, HostSlots{"me@10.0.0.9", 2}));
  EXPECT_THAT(parse_hosts("a:2,b:1,a:3"), ElementsAre(HostSlots{"a", 5}, HostSlots{"b", 1}));
  EXPECT_THAT(parse_hosts("localhost:2,b:1,127.0.0.1:3"),
              ElementsAre(HostSlots{"localhost", 5}, HostSlots{"b", 1}))
      << "two names of this host";
  EXPECT_THAT(parse_hosts("[fd00::7]:4,fd00::8"),
              ElementsAre(HostSlots{"fd00::7", 4}, HostSlots{"fd00::8", 1}));
  EXPECT_THAT(parse_hosts("me@[fd00::7]:4,me@[fd00::8],me@fd00::9"),
              ElementsAre(HostSlots{"me@fd00::7", 4}, HostSlots{"me@fd00::8", 1},
                          HostSlots{"me@fd00::9", 1}))
      << "ssh takes no brackets";
  EXPECT_THAT(Hostfile("me@[fd00::7] slots=4\n").read(), ElementsAre(HostSlots{"me@fd00::7", 4}));
}

TEST(Hosts, ThisHostHasANameWithAndWithoutItsDomain) {
  const std::string own = observe::host_name(), label = own.substr(0, own.find('.'));
  EXPECT_TRUE(is_this_host(own));
  EXPECT_TRUE(is_this_host(label));
  EXPECT_EQ(is_this_host(label + ".far.away"), own == label) << "it knows no domain of its own";
  EXPECT_FALSE(is_this_host(label + "-1"));
}

TEST(Hosts, AMalformedListIsRefused) {
  for (const char* list :
       {"", "a:", "a:0", "a:four", "a:-1", "a:70000", "a,,b", ":4", "-oProxy:1", "a b:1", "me@:1",
        "a;b", "$(a)", "@a", "me@-x", "[-x]", "me@[-x]:2", "[a:4", "a]:4"}) {
    EXPECT_THAT(refusal_of([&] { parse_hosts(list); }), HasSubstr("-H " + std::string(list) + ": "))
        << list;
  }
}

TEST(Hosts, AFileHasOneHostPerLine) {
  const Hostfile file("# the two of us\nnode07 slots=4\n\n  node08:2  # half\nnode09\nnode07:1\n");
  EXPECT_THAT(file.read(),
              ElementsAre(HostSlots{"node07", 5}, HostSlots{"node08", 2}, HostSlots{"node09", 1}));
}

TEST(Hosts, AnAddressThatEndsWithOneHasNoSlotsYet) {
  const Hostfile file("fd00::1 slots=4\n[fd00::2] slots=2\n");
  EXPECT_THAT(file.read(), ElementsAre(HostSlots{"fd00::1", 4}, HostSlots{"fd00::2", 2}));
}

TEST(Hosts, AMalformedFileIsRefusedWithItsLine) {
  for (const auto& [text, line, words] :
       {std::tuple{"node07 slots=4\nnode08 slots=many\n", ":2: ", "\"many\" is no number of slots"},
        {"a\n#\nb cores=4\n", ":3: ", "\"cores=4\" is not slots=NUMBER"},
        {"a:2 slots=4\n", ":1: ", "slots are given twice"},
        {"a:1 slots=4\n", ":1: ", "slots are given twice"},
        {"a slots=1 slots=4\n", ":1: ", "slots are given twice"},
        {"[fd00::1]:1 slots=4\n", ":1: ", "slots are given twice"},
        {"a\n-x slots=1\n", ":2: ", "\"-x\" is no name of a host"},
        {"# nothing\n", ": ", "no host is named"},
        {"", ": ", "no host is named"}}) {
    const Hostfile file(text);
    EXPECT_THAT(refusal_of([&] { file.read(); }),
                AllOf(HasSubstr(file.path() + line), HasSubstr(words)));
  }
  EXPECT_THAT(refusal_of([] { read_hostfile("/nowhere/hosts"); }),
              HasSubstr("/nowhere/hosts: No such file"));
}

TEST(Hosts, WorkersFillSlotsAndOthersGoRound) {
  const std::vector<HostSlots> hosts{{"a", 2}, {"b", 4}, {"c", 2}};
  const Roles roles{.workers = 5, .servers = 4, .evaluator = true};
  const std::vector<int> places = place_processes(roles, hosts);
  EXPECT_THAT(places, ElementsAre(0, 0, 1, 1, 1, 0, 1, 2, 0, 1));
  EXPECT_EQ(describe_places(roles, hosts, places),
            "a: ranks 0, 1, servers 0, 3; b: ranks 2 to 4, server 1, the evaluator; c: server 2");
  EXPECT_THAT(workers_by_host(8, hosts), ElementsAre(2, 4, 2));
  EXPECT_THAT(refusal_of([&] { place_processes(Roles{.workers = 9}, hosts); }),
              HasSubstr("9 ranks, but the hosts have 8 slots"));
}

// A launch within another job: what that one told this process is no other host's.
TEST(JobHosts, VariablesOfAnOuterJobStayHere) {
  const std::string names[] = {"TRIREME_SECRET_FD", "TRIREME_STATUS_FD", "TRIREME_CORES",
                               "TRIREME_SHARED_CORES"};
  for (const std::string& name : names) setenv(name.c_str(), "77", 1);
  setenv("TRIREME_LOG_LEVEL", "debug", 1);
  LaunchOptions options{.ranks = 2};
  options.elsewhere.hosts = {{"localhost", 1}, {"node-far-away", 1}};
  const JobHosts hosts(options);
  ASSERT_FALSE(hosts.is_local(1));
  const std::vector<std::string> there = hosts.environment_of(1, {});
  for (const std::string& name : names) {
    EXPECT_THAT(there, Not(Contains(name + "=77")));
    unsetenv(name.c_str());
  }
  EXPECT_THAT(there, Contains("TRIREME_LOG_LEVEL=debug"));
  unsetenv("TRIREME_LOG_LEVEL");
}

TEST(Messages, AreReadAsTheyWereWritten) {
  const StartOptions start{.command = {"./program", "", "two words"},
                           .environment = {"A=1", std::string("B=\n 7 7\0x", 9)}};
  const Ending end{.exit = {137, 9},
                   .activity = {.waiting = true,
                                .operation = "all_reduce bucket 1",
                                .last_call = "barrier",
                                .since = std::chrono::seconds(3),
                                .step = 12},
                   .last_words = "gone\nfor good"};
  std::string bytes = encode(message_of(3, start)) + encode(message_of(4, end));
  const std::string whole = bytes;
  Message message;
  bytes.pop_back();
  ASSERT_TRUE(take_message(bytes, message));
  EXPECT_EQ(message.kind, "start");
  EXPECT_EQ(message.process, 3);
  EXPECT_EQ(start_from(message).command, start.command);
  EXPECT_EQ(start_from(message).environment, start.environment);
  EXPECT_FALSE(take_message(bytes, message)) << "its last byte is missing";
  bytes += whole.back();
  ASSERT_TRUE(take_message(bytes, message));
  const Ending read = ending_from(message);
  EXPECT_EQ(read.exit.code, 137);
  EXPECT_EQ(read.exit.signal, 9);
  EXPECT_EQ(read.activity.operation, "all_reduce bucket 1");
  EXPECT_EQ(read.activity.step, 12);
  EXPECT_EQ(read.activity.since, std::chrono::seconds(3));
  EXPECT_EQ(read.last_words, "gone\nfor good");
  EXPECT_TRUE(bytes.empty());
}

TEST(Messages, MalformedOnesAreRefused) {
  for (const std::string text :
       {"\n", "out\n", "out x\n", "out 1 -5\n", "out 1 99999999999\n", "out 1 2x\n"}) {
    std::string bytes = text;
    Message message;
    EXPECT_THROW(take_message(bytes, message), ConfigError) << text;
  }
  EXPECT_THROW(start_from({"start", 0, {"5", "a"}}), ConfigError);
  EXPECT_THROW(start_from({"start", 0, {"0", "a"}}), ConfigError);
  EXPECT_THROW(ending_from({"ended", 0, {"1"}}), ConfigError);
  EXPECT_THROW(setup_from({"setup", -1, {"1"}}), ConfigError);
}

}  // namespace
}  // namespace trireme::launch::hosts_test
