// Elastic trainings with parameter servers, as real processes.
#include <gmock/gmock.h>

#include "tests/cli/elastic.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;

class ElasticServers : public Elastic {
 protected:
  // Worker 1, then server 0, then worker 0; each is there again before the next one is lost.
  static void lose_each(Command::Running& job) {
    kill_process(job, "worker", 1);
    ASSERT_TRUE(job.wait_for("process 1 has come")) << job.output();
    kill_process(job, "server", 0);
    await(job, "is back, with a copy of shard", 2);
    kill_process(job, "worker", 0);
    ASSERT_TRUE(job.wait_for("process 0 has come")) << job.output();
  }
};

// A training with DLRM, whose tables drop rows, and its data.
std::string write_clicks(const Folder& folder) {
  std::string clicks = "Id,Label";
  for (int i = 1; i <= 13; ++i) clicks += ",I" + std::to_string(i);
  for (int i = 1; i <= 26; ++i) clicks += ",C" + std::to_string(i);
  for (int sample = 0; sample < 400; ++sample) {
    clicks += "\n" + std::to_string(sample) + "," + std::to_string(sample * 7 % 5 == 0);
    for (int i = 1; i <= 13; ++i) clicks += "," + std::to_string(sample * i % 11);
    for (int i = 1; i <= 26; ++i) clicks += ",c" + std::to_string(sample * (i + 3) % 37);
  }
  const std::string data = folder.write("clicks.csv", clicks + "\n");
  return folder.write("clicks.toml",
                      "[model]\nname = \"dlrm\"\nwidth = 4\nhidden = 8\nmax_rows = 500\n"
                      "[data]\npath = \"" +
                          data +
                          "\"\nrows = 100\n"
                          "[batch]\nglobal = 16\nmicro = 2\n"
                          "[optimizer]\nname = \"adagrad\"\n[parallel]\nsync = \"server\"\n"
                          "[server]\nreplicas = 2\n[train]\nsteps = 800\nclip = 0.5\n"
                          "learning_rate = 0.02\nschedule = \"constant\"\nvalidate_every = 200\n");
}

// Weights and the optimizer's state are on the servers, one of which is lost as well.
TEST_F(ElasticServers, SynchronousWorkersComeAndGo) {
  auto job = elastic(2, "run",
                     {"--elastic", "1:4", "--servers", "2", "--set", "parallel.sync=server",
                      "--set", "server.replicas=2"})
                 .start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  lose_each(job);
  resize_run(folder_, 4);
  ASSERT_TRUE(job.wait_for("goes on with 4 ranks")) << job.output();
  const CommandResult result = job.wait(500);
  expect_undisturbed(result, "run");
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("goes back")));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("go back")));
  for (const auto& change : changes("run")) EXPECT_EQ(change.at("steps_repeated"), 0);
}

// The servers get a checkpoint's weights and state, when no worker is left that has later ones. Neither
// they nor the evaluator are disturbed.
TEST_F(ElasticServers, ServersGoBackWithWorkersOfWhomNobodyIsLeft) {
  auto job = elastic(2, "run",
                     {"--elastic", "1:2", "--servers", "2", "--evaluator", "1", "--set",
                      "parallel.sync=server", "--set", "checkpoint.every=100"})
                 .start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  await_steps(job, "run", 250);
  kill_process(job, "worker", 0);
  kill_process(job, "worker", 1);
  ASSERT_TRUE(job.wait_for("the job goes back from step")) << job.output();
  const CommandResult result = job.wait(500);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_EQ(hash("run"), undisturbed_hash(1500));
  EXPECT_THAT(result.out, HasSubstr("evaluat"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("SIGSEGV")));
}

// A step that is done again reads the rows that it read before, also where it has updated or dropped them.
TEST_F(ElasticServers, RowsOfEmbeddingsOutliveThem) {
  config_ = write_clicks(folder_);
  const CommandResult alone = elastic(1, "alone", {"--servers", "2"}).run(500);
  ASSERT_EQ(alone.code, 0) << alone.out << alone.err;
  auto job = elastic(2, "run", {"--elastic", "1:3", "--servers", "2"}).start();
  await_steps(job, "run", 50);
  lose_each(job);
  const CommandResult result = job.wait(500);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(hash("run"), hash("alone"));
  for (const auto& change : changes("run")) EXPECT_EQ(change.at("steps_repeated"), 0);
}

}  // namespace
}  // namespace trireme::testing
