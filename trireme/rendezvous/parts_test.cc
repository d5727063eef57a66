// Small parts of the rendezvous: secrets, the environment of launchers, the status page.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "trireme/base/error.h"
#include "trireme/rendezvous/environment.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Getenv from(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Secret, AProofIsOverItsPartsNotTheirConcatenation) {
  const std::string proof = prove("Jefe", {"what do ya want ", "for nothing?"});
  EXPECT_EQ(proof.size(), 32u);
  EXPECT_EQ(proof, prove("Jefe", {"what do ya want ", "for nothing?"}));
  EXPECT_NE(proof, prove("Jefe", {"what do ya want for ", "nothing?"}));
  EXPECT_NE(proof, prove("jefe", {"what do ya want ", "for nothing?"}));
  EXPECT_TRUE(same_proof(proof, proof));
  EXPECT_FALSE(same_proof(proof, proof.substr(1)));
}

TEST(Secret, TravelsByDescriptorOnce) {
  const std::string secret = random_bytes(kSecretBytes);
  EXPECT_NE(secret, random_bytes(kSecretBytes));
  const int descriptor = secret_descriptor(secret);
  EXPECT_EQ(read_secret_descriptor(descriptor), secret);
  EXPECT_THROW(read_secret_descriptor(descriptor), RefusedError) << "it was closed";
}

TEST(Secret, AFileMustBeItsOwnersAlone) {
  const std::string path = ::testing::TempDir() + "/secret." + std::to_string(getpid());
  std::ofstream(path) << "0123456789abcdef0123456789abcdef\n";
  chmod(path.c_str(), 0640);
  EXPECT_THROW(read_secret_file(path), RefusedError);
  chmod(path.c_str(), 0600);
  EXPECT_EQ(read_secret_file(path), "0123456789abcdef0123456789abcdef");
  std::ofstream(path) << "short";
  EXPECT_THROW(read_secret_file(path), RefusedError);
  std::remove(path.c_str());
  EXPECT_THROW(read_secret_file(path), RefusedError);
}

// Nobody writes to the pipe, so a reader that waited for a writer would wait for ever.
TEST(Secret, ANamedPipeIsNoSecretFile) {
  const std::string path = ::testing::TempDir() + "/secret-pipe." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  try {
    read_secret_file(path);
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is no regular file"));
  }
  std::remove(path.c_str());
}

TEST(Environment, AloneIsOneRankWithoutACoordinator) {
  const RankEnvironment rank = resolve_environment(from({}));
  EXPECT_EQ(rank.rank, 0);
  EXPECT_EQ(rank.size, 1);
  EXPECT_EQ(rank.coordinator, "");
}

TEST(Environment, ReadsWhatTheLauncherGives) {
  const RankEnvironment rank = resolve_environment(from({{"TRIREME_COORDINATOR", "127.0.0.1:5"},
                                                         {"TRIREME_RANK", "2"},
                                                         {"TRIREME_SIZE", "4"},
                                                         {"TRIREME_SECRET_FD", "9"},
                                                         {"TRIREME_CORES", "3"},
                                                         {"OMPI_COMM_WORLD_SIZE", "8"}}));
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_size, 4);
  EXPECT_EQ(rank.secret_descriptor, 9);
  EXPECT_EQ(rank.cores, 3);
  EXPECT_THROW(resolve_environment(from({{"TRIREME_COORDINATOR", "x"}, {"TRIREME_RANK", "2"}})),
               ConfigError);
  EXPECT_THROW(resolve_environment(from({{"TRIREME_COORDINATOR", "x"}, {"TRIREME_RANK", "two"}})),
               ConfigError);
}

TEST(Environment, KnowsWhatMpirunGives) {
  RankEnvironment rank = resolve_environment(from({{"OMPI_COMM_WORLD_SIZE", "4"},
                                                   {"OMPI_COMM_WORLD_RANK", "3"},
                                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}));
  EXPECT_EQ(rank.launcher, "mpirun (Open MPI)");
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_size, 2);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.coordinator, "");
  rank = resolve_environment(from({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}));
  EXPECT_EQ(rank.launcher, "mpirun (MPICH)");
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.local_size, 2);
  EXPECT_EQ(resolve_environment(from({{"PMI_SIZE", "1"}})).launcher, "");
  rank = resolve_environment(from({{"TRIREME_COORDINATOR", "127.0.0.1:5"},
                                   {"TRIREME_RANK", "0"},
                                   {"TRIREME_SIZE", "1"},
                                   {"PMI_SIZE", "2"}}));
  EXPECT_EQ(rank.launcher, "");
}

TEST(Environment, KnowsWhatTorchrunGives) {
  std::map<std::string, std::string> torchrun{{"RANK", "3"},
                                              {"WORLD_SIZE", "4"},
                                              {"LOCAL_RANK", "1"},
                                              {"LOCAL_WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "node07"},
                                              {"MASTER_PORT", "29500"},
                                              {"TORCHELASTIC_RUN_ID", "none"},
                                              {"SLURM_PROCID", "0"},
                                              {"SLURM_NTASKS", "2"}};
  const RankEnvironment rank = resolve_environment(from(torchrun));
  EXPECT_EQ(rank.launcher, "torchrun");
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_size, 2);
  EXPECT_EQ(rank.coordinator, "");
  ASSERT_TRUE(rank.meeting);
  EXPECT_EQ(rank.meeting->host, "node07");
  EXPECT_FALSE(rank.meeting->one_host);
  torchrun["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(resolve_environment(from(torchrun)).meeting->name, rank.meeting->name);
  torchrun["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_TRUE(resolve_environment(from(torchrun)).meeting->one_host);
  torchrun["RANK"] = "4";
  EXPECT_THROW(resolve_environment(from(torchrun)), ConfigError);
  EXPECT_EQ(resolve_environment(from({{"WORLD_SIZE", "1"}, {"RANK", "0"}})).launcher, "");
  EXPECT_THROW(resolve_environment(from({{"WORLD_SIZE", "2"}, {"RANK", "0"}})), ConfigError);
}

TEST(Environment, KnowsWhatSrunGives) {
  std::map<std::string, std::string> srun{{"SLURM_PROCID", "4"},
                                          {"SLURM_NTASKS", "5"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_JOB_ID", "17"},
                                          {"SLURM_STEP_ID", "2"},
                                          {"SLURM_STEP_NUM_NODES", "3"},
                                          {"SLURM_NODEID", "2"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                                          {"SLURM_STEP_NODELIST", "gpu[07-08,11],login1"}};
  const RankEnvironment rank = resolve_environment(from(srun));
  EXPECT_EQ(rank.launcher, "srun");
  EXPECT_EQ(rank.rank, 4);
  EXPECT_EQ(rank.size, 5);
  EXPECT_EQ(rank.local_rank, 0);
  EXPECT_EQ(rank.local_size, 1);
  ASSERT_TRUE(rank.meeting);
  EXPECT_EQ(rank.meeting->name, "srun 17.2");
  EXPECT_EQ(rank.meeting->host, "gpu07");
  EXPECT_FALSE(rank.meeting->one_host);
  srun["SLURM_NODEID"] = "1";
  EXPECT_EQ(resolve_environment(from(srun)).local_size, 2);
  srun["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(resolve_environment(from(srun)).local_size, 5);
  EXPECT_TRUE(resolve_environment(from(srun)).meeting->one_host);
  EXPECT_EQ(resolve_environment(from({{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}})).size, 1);
}

TEST(Environment, KnowsTheFirstHostOfAList) {
  for (const auto& [list, first] : {std::pair<std::string, std::string>{"node07", "node07"},
                                    {"node07,node09", "node07"},
                                    {"node[07-09,12],gpu1", "node07"},
                                    {"rack[2,4]n[1-3]", "rack2n1"},
                                    {"", ""}}) {
    EXPECT_EQ(first_host(list), first) << list;
  }
}

TEST(Environment, RefusesWhatItCannotJoinInsteadOfTrainingCopies) {
  const auto text_of = [](std::map<std::string, std::string> variables) {
    try {
      resolve_environment(from(std::move(variables)));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  // A batch script, which Slurm has started only once.
  EXPECT_THAT(text_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}),
              AllOf(HasSubstr("4 tasks (SLURM_NTASKS), but srun has not started this process"),
                    HasSubstr("srun -n 4 PROGRAM"), HasSubstr("trireme train --ranks 4")));
  EXPECT_THAT(text_of({{"TF_CONFIG", R"({"cluster": {}, "task": {"index": 0}})"}}),
              HasSubstr("TF_CONFIG"));
  EXPECT_EQ(resolve_environment(from({{"OMPI_COMM_WORLD_SIZE", "1"}})).size, 1);
}

TEST(Environment, ABatchScriptIsNoStepOfSrun) {
  std::map<std::string, std::string> batch{
      {"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}};
  EXPECT_TRUE(in_batch_script(from(batch)));
  batch["SLURM_STEP_ID"] = "4294967291";  // SLURM_BATCH_SCRIPT
  EXPECT_TRUE(in_batch_script(from(batch)));
  EXPECT_THROW(resolve_environment(from(batch)), ConfigError);
  batch["SLURM_STEP_ID"] = "0";
  EXPECT_FALSE(in_batch_script(from(batch)));
  EXPECT_EQ(resolve_environment(from(batch)).launcher, "srun");
  EXPECT_FALSE(in_batch_script(from({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}})));  // salloc
  EXPECT_FALSE(
      in_batch_script(from({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}})));
}

TEST(Environment, IsOneProcessWhereLaunchersAreIgnored) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"}) {
    setenv(name, "2", 1);
  }
  for (const char* name : {"RANK", "SLURM_PROCID"}) setenv(name, "0", 1);
  setenv("TF_CONFIG", R"({"task": {}})", 1);
  ignore_launchers();
  const RankEnvironment rank = resolve_environment();
  for (const char* name : {"RANK", "SLURM_PROCID"}) unsetenv(name);
  EXPECT_EQ(rank.size, 1);
  EXPECT_EQ(rank.launcher, "");
}

TEST(StatusPage, IsReadByWhoeverMapsIt) {
  const int descriptor = StatusPage::make_descriptor();
  const StatusPage launcher(dup(descriptor));
  EXPECT_EQ(launcher.read(steady_now()).step, -1);
  {
    StatusPage rank(descriptor);
    const TimePoint start = steady_now();
    rank.set_step(7);
    rank.set_wait("all_reduce bucket 1", true, start);
    rank.set_wait("all_reduce bucket 1", false, start);
    rank.set_wait(std::string(100, 'x'), true, start);
    rank.set_last_words("threw");
  }
  const Activity activity = launcher.read(steady_now() + seconds(5));
  EXPECT_TRUE(activity.waiting);
  EXPECT_EQ(activity.operation, std::string(64, 'x'));
  EXPECT_EQ(activity.last_call, "all_reduce bucket 1");
  EXPECT_EQ(activity.step, 7);
  EXPECT_GE(activity.since, seconds(5));
  EXPECT_EQ(launcher.last_words(), "threw");
}

}  // namespace
}  // namespace trireme::rendezvous
