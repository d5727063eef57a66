// A Job whose constructor throws, and what its coordinator hears of it.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/job/job.h"
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
  options.size = 2;
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

}  // namespace
}  // namespace trireme::failed_start_test
