// A rank whose process ends right after it has joined. If only the coordinator can notice, it must
// have the rank's stream of news by then.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "trireme/base/event.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/testing/process_bodies.h"

namespace trireme {
namespace {

const std::string kSecret(32, 's');

rendezvous::ClientOptions rank(int rank, const std::string& endpoint) {
  return {.endpoint = endpoint,
          .secret = kSecret,
          .rank = rank,
          .host = "host",
          .timeout = std::chrono::seconds(20)};
}

TRIREME_PROCESS(ends_at_once) {
  rendezvous::CoordinatorClient client(rank(1, std::getenv("TRIREME_TEST_ENDPOINT")));
  client.watch([](const rendezvous::News&) {});
  return kill(getpid(), SIGKILL);
}

TEST(EarlyEnd, IsNewsHoweverEarly) {
  std::string command = "TRIREME_TEST_PROCESS=ends_at_once exec ";
  command += std::filesystem::read_symlink("/proc/self/exe").string();
  for (int round = 0; round < 20; ++round) {
    rendezvous::Coordinator coordinator(
        {.roles = {.workers = 2}, .secret = kSecret, .lost_with_stream = true});
    Event arrived;  // outlives the thread that watches
    rendezvous::CoordinatorClient zero(rank(0, coordinator.endpoint()));
    zero.watch([&](const rendezvous::News&) { arrived.set(); });
    setenv("TRIREME_TEST_ENDPOINT", coordinator.endpoint().c_str(), 1);
    const int status = std::system(command.c_str());
    ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
                                    : WEXITSTATUS(status) == 128 + SIGKILL)
        << status;
    ASSERT_TRUE(arrived.wait(std::chrono::seconds(5))) << "round " << round;
    EXPECT_EQ(coordinator.first_failure()->rank, 1);
    zero.stop_watching();
  }
}

}  // namespace
}  // namespace trireme
