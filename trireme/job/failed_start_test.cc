// A Job whose constructor throws, and what its coordinator hears of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/job/job.h"
#include "trireme/job/stop_signal.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/coordinator.h"

namespace trireme::failed_start_test {
namespace {

using std::chrono::seconds;

const std::string kSecret(32, 's');

class SecretFile {
 public:
  SecretFile() {
    std::ofstream(path_) << kSecret;
    chmod(path_.c_str(), 0600);
  }
  ~SecretFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_ = ::testing::TempDir() + "failed-start-" + std::to_string(getpid());
};

class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }

 private:
  const std::map<std::string, std::string> values_;
};

// Nobody but the process itself tells a standing coordinator how it ends, so that the job would count as done.
TEST(FailedStart, OfARankDoesNotCountAsTheEndOfItsTraining) {
  Event left;
  std::atomic<int> code{-1};
  rendezvous::CoordinatorOptions options;
  options.roles.workers = 2;
  options.secret = kSecret;
  options.elastic = rendezvous::Epoch{.number = 1, .members = {0, 1}};
  options.lost_with_stream = true;
  options.on_left = [&](int process, int exit_code) {
    if (process != 0) return;
    code = exit_code;
    left.set();
  };
  rendezvous::Coordinator coordinator(std::move(options));
  std::thread peer([&] {
    rendezvous::CoordinatorClient one(
        {.endpoint = coordinator.endpoint(), .secret = kSecret, .rank = 1, .host = "host"});
    for (const char* key : {"hosts", "tuning"})
      one.exchange(key, "host", seconds(30), {.members = {0, 1}, .epoch = 1});
    left.wait(seconds(30));
  });
  const SecretFile secret;
  const Variables variables({{"TRIREME_COORDINATOR", coordinator.endpoint()},
                             {"TRIREME_RANK", "0"},
                             {"TRIREME_SIZE", "2"},
                             {"TRIREME_ELASTIC", "1"},
                             {"TRIREME_HOST", "host"},
                             {"TRIREME_JOB_SECRET_FILE", secret.path()}});
  // It meets rank 1, and then cannot connect to it.
  EXPECT_THROW(Job(0, nullptr, {.transport = "mpi"}), ConfigError);
  EXPECT_TRUE(left.wait(seconds(30)));
  EXPECT_EQ(code, 1) << "0 says that it has done all its steps";
  peer.join();
}

// `trireme train` starts it; a Job would wait for it in vain.
TEST(FailedStart, OfServer0OfATFJobWithEnableDynamicWorkerSaysThatNobodyStartsItsCoordinator) {
  const Variables variables(
      {{"TF_CONFIG", R"({"sparseCluster":{"worker":{},"ps":["job-ps-0.ns.svc:2222"]},)"
                     R"("task":{"type":"ps","index":0}})"},
       {"TRIREME_WORKERS", "2"},
       {"TRIREME_SERVERS", "1"}});
  try {
    Job job(0, nullptr);
    FAIL() << "it has joined";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("whose coordinator only `trireme train` starts"), what.npos) << what;
    EXPECT_NE(what.find("TRIREME_COORDINATOR"), what.npos) << what;
  }
}

// A sanitizer sees a read of the Job's memory; without one, the process may end by SIGSEGV.
TEST(FailedStart, ByWrongOptionsLeavesTheHandlerOfLaterExceptionsNothingOfTheJob) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fails_later = [] {
    try {
      Job job(0, nullptr, {.transport = "bogus"});
    } catch (const Error&) {
    }
    throw std::runtime_error("something else is wrong");
  };
  // A death test catches exceptions, and this one is to leave main.
  EXPECT_EXIT([&]() noexcept { fails_later(); }(), ::testing::ExitedWithCode(20),
              "something else is wrong");
}

// A process of an elastic job that waits for a place, with a signal of its own.
TEST(FailedStart, AStopSignalEndsAProcessWithoutAPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto waits = [] {
    rendezvous::CoordinatorOptions options;
    options.roles.workers = 2;
    options.secret = kSecret;
    options.elastic = rendezvous::Epoch{.number = 1, .members = {0}};
    options.lost_with_stream = true;
    options.on_left = [&](int process, int exit_code) {
      std::fprintf(stderr, "process %d has left with %d\n", process, exit_code);
    };
    rendezvous::Coordinator coordinator(std::move(options));
    const SecretFile secret;
    const Variables variables({{"TRIREME_COORDINATOR", coordinator.endpoint()},
                               {"TRIREME_RANK", "1"},
                               {"TRIREME_SIZE", "2"},
                               {"TRIREME_ELASTIC", "1"},
                               {"TRIREME_HOST", "host"},
                               {"TRIREME_JOB_SECRET_FILE", secret.path()}});
    job::stop_signal();  // from here on, signals are noted
    raise(SIGTERM);
    Job job(0, nullptr, {});
  };
  // Not 0, which would mean that it has done all steps, nor 143, a stop on which ranks agreed.
  EXPECT_EXIT(waits(), ::testing::ExitedWithCode(143), "process 1 has left with 1");
}

}  // namespace
}  // namespace trireme::failed_start_test
