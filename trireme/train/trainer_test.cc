// Whole trainings on simulated ranks.
#include "trireme/train/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/training_process.h"

namespace trireme::trainer_test {
namespace {

namespace fs = std::filesystem;
using testing::FaultyTransport;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : place_(::testing::TempDir() + "trainer-" + std::to_string(getpid())) {
    fs::create_directories(folder().path());
    std::ofstream text(place_ + "/text");
    for (int i = 0; i < 400; ++i) text << "line " << i * i << " of the text\n";
  }
  ~TrainerTest() override { fs::remove_all(place_); }

  train::RunFolder folder() const { return train::RunFolder(place_ + "/run"); }
  std::string former() const { return folder().config() + ".former"; }
  void configure(int steps) const {
    folder().write_config(
        train::read_config("", [](const char*) { return nullptr; },
                           {"data.path=" + place_ + "/text", "model.layers=1", "model.width=8",
                            "model.heads=1", "model.block=8", "batch.global=4", "batch.micro=2",
                            "train.validate_every=0", "train.validate_sequences=1",
                            "train.sample_bytes=0", "train.steps=" + std::to_string(steps)}));
  }
  // Two ranks train. At rank 1's call number `lost_at`, if there are so many, both lose each other.
  // Whether they came to their end.
  bool train(bool resume, int lost_at = -1) const {
    const train::WorkerSpec spec{.folder = folder().path(), .resume = resume};
    train::set_up_training(spec);
    net::SimNetwork network(2, {.shared_memory = false});  // whose accesses are no calls
    const std::vector<std::shared_ptr<net::Transport>> inner = {network.transport(0),
                                                                network.transport(1)};
    int calls = 0, ended = 0;
    const auto hook = [&](FaultyTransport::Call, int) {
      if (calls++ != lost_at) return;
      for (const auto& one : inner) one->abort(std::make_exception_ptr(PeerLost("killed")));
    };
    network.run([&](int rank) {
      std::shared_ptr<net::Transport> own = inner[static_cast<std::size_t>(rank)];
      if (rank == 1) own = std::make_shared<FaultyTransport>(own, hook);
      try {
        train::run_simulated_rank(own, nullptr, spec);
        ++ended;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ExitCode::PeerLost) << error.what();
      }
    });
    return ended == 2;
  }

  const std::string place_;
};

// The job may be elastic, and goes on with the values with which it was resumed.
TEST_F(TrainerTest, ARankThatIsLostWhileTheCheckpointIsLoadedDoesNotRollTheConfigurationBack) {
  configure(2);
  ASSERT_TRUE(train(/*resume=*/false));
  folder().keep_config();
  configure(3);
  int lost_at = 0;
  for (; fs::exists(former()); ++lost_at) {
    EXPECT_FALSE(train(/*resume=*/true, lost_at));
    const auto config =
        train::read_config(folder().config(), [](const char*) { return nullptr; }, {});
    ASSERT_EQ(config.integer("train.steps"), 3) << "lost at call " << lost_at;
    ASSERT_LT(lost_at, 1000);
  }
  EXPECT_GT(lost_at, 1) << "the checkpoint is loaded before the first call";
}

}  // namespace
}  // namespace trireme::trainer_test
