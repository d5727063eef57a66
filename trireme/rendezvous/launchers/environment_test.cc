// The variables of every launcher, as it sets them, and what they mean together.
#include "trireme/rendezvous/launchers/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/rendezvous/launchers/environment_test.h"
#include "trireme/rendezvous/launchers/launchers.h"

namespace trireme::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Process 3 of `mpirun -n 4` on two hosts.
const Variables kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"PMIX_RANK", "3"}};

// The second task of `srun -N 2 -n 2`: one task on each node.
const Variables kSrun{{"SLURM_JOB_ID", "17"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "1"},
                      {"SLURM_NTASKS", "2"},
                      {"SLURM_STEP_NUM_TASKS", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                      {"SLURM_STEP_NODELIST", "node[07-08]"}};

// Rank `rank` of `torchrun --nproc-per-node LOCAL` with `size` ranks in all.
Variables torchrun(const std::string& rank, const std::string& size, const std::string& local) {
  return {{"RANK", rank},           {"WORLD_SIZE", size},
          {"LOCAL_RANK", "0"},      {"LOCAL_WORLD_SIZE", local},
          {"GROUP_RANK", "0"},      {"MASTER_ADDR", "node07"},
          {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "none"}};
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

TEST(Environment, ReadsTheRoleThatTheLauncherGives) {
  const Variables server{{"TRIREME_COORDINATOR", "127.0.0.1:5"},
                         {"TRIREME_RANK", "1"},
                         {"TRIREME_SIZE", "2"},
                         {"TRIREME_ROLE", "server"},
                         {"TRIREME_WORKERS", "4"},
                         {"TRIREME_SERVERS", "2"},
                         {"TRIREME_EVALUATOR", "1"}};
  const RankEnvironment place = resolve_environment(from(server));
  EXPECT_EQ(place.role, Role::Server);
  EXPECT_EQ(place.process(), 5);
  EXPECT_EQ(place.roles(), (Roles{.workers = 4, .servers = 2, .evaluator = true}));
  EXPECT_EQ(place.roles().name_of(5), "server 1");
  EXPECT_EQ(place.roles().name_of(6), "the evaluator");
  Variables other = server;
  other["TRIREME_ROLE"] = "teacher";
  EXPECT_THAT(refusal_of(other), HasSubstr("TRIREME_ROLE=teacher is no role"));
  other["TRIREME_ROLE"] = "worker";
  EXPECT_THAT(refusal_of(other), HasSubstr("contradict TRIREME_WORKERS"));
}

// Workers that come later are the last processes, so that the others' numbers do not depend on them.
TEST(Environment, AWorkerMayJoinLater) {
  Variables worker{{"TRIREME_COORDINATOR", "127.0.0.1:5"},
                   {"TRIREME_RANK", "3"},
                   {"TRIREME_SIZE", "2"},
                   {"TRIREME_WORKERS", "2"},
                   {"TRIREME_SERVERS", "1"},
                   {"TRIREME_EVALUATOR", "1"},
                   {"TRIREME_MORE_WORKERS", "2"}};
  const RankEnvironment place = resolve_environment(from(worker));
  EXPECT_TRUE(place.joins_later());
  EXPECT_EQ(place.process(), 5);
  EXPECT_EQ(place.roles().processes(), 6);
  EXPECT_EQ(place.roles().role_of(5), Role::Worker);
  EXPECT_EQ(place.roles().name_of(5), "rank 3");
  EXPECT_EQ(place.roles().name_of(2), "server 0");
  EXPECT_EQ(place.roles().name_of(3), "the evaluator");
  worker["TRIREME_RANK"] = "4";
  EXPECT_THAT(refusal_of(worker), HasSubstr("do not name a rank"));
  worker["TRIREME_RANK"] = "1";
  EXPECT_FALSE(resolve_environment(from(worker)).joins_later());
}

// Nobody says who else is on its host.
TEST(Environment, AWorkerMayBeOnItsOwn) {
  Variables worker{{"TRIREME_COORDINATOR", "127.0.0.1:5"},
                   {"TRIREME_ELASTIC", "workers"},
                   {"TRIREME_RANK", "1"},
                   {"TRIREME_SIZE", "2"},
                   {"TRIREME_WORKERS", "2"},
                   {"TRIREME_SERVERS", "1"}};
  const RankEnvironment place = resolve_environment(from(worker));
  EXPECT_TRUE(place.on_its_own);
  EXPECT_TRUE(place.joins_later());
  EXPECT_FALSE(place.elastic);
  EXPECT_EQ(place.local_rank, 0);
  worker["TRIREME_LOCAL_RANK"] = "1";
  EXPECT_EQ(resolve_environment(from(worker)).local_rank, 1);
  worker["TRIREME_ELASTIC"] = "1";
  EXPECT_TRUE(resolve_environment(from(worker)).elastic);
  EXPECT_FALSE(resolve_environment(from(worker)).joins_later());
  worker["TRIREME_ELASTIC"] = "ranks";
  EXPECT_THAT(refusal_of(worker), HasSubstr("TRIREME_ELASTIC=ranks is not 0, 1 or workers"));
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
  EXPECT_THAT(refusal_of({{"PMI_SIZE", "2"}}),
              HasSubstr("PMI_SIZE=2 means several processes, but PMI_RANK is not set"));
  rank = resolve_environment(from({{"TRIREME_COORDINATOR", "127.0.0.1:5"},
                                   {"TRIREME_RANK", "0"},
                                   {"TRIREME_SIZE", "1"},
                                   {"PMI_SIZE", "2"}}));
  EXPECT_EQ(rank.launcher, "");
}

TEST(Environment, KnowsWhatTorchrunGives) {
  Variables torchrun{{"RANK", "3"},
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
  Variables srun{{"SLURM_PROCID", "4"},
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
  // A batch script, which Slurm has started only once.
  EXPECT_THAT(refusal_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}),
              AllOf(HasSubstr("4 tasks (SLURM_NTASKS), but srun has not started this process"),
                    HasSubstr("srun -n 4 PROGRAM"), HasSubstr("trireme train --ranks 4")));
  EXPECT_THAT(refusal_of({{"TF_CONFIG", R"({"cluster": {}, "task": {"index": 0}})"}}),
              HasSubstr("TF_CONFIG"));
  EXPECT_EQ(resolve_environment(from({{"OMPI_COMM_WORLD_SIZE", "1"}})).size, 1);
}

TEST(Environment, RefusesARankWithoutASizeAndASizeWithoutARank) {
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node07"}}),
              HasSubstr("WORLD_SIZE=4 means several processes, but RANK is not set"));
  EXPECT_THAT(refusal_of({{"RANK", "1"}, {"MASTER_ADDR", "node07"}}),
              HasSubstr("RANK=1 means several processes, but WORLD_SIZE is not set"));
  // Without MASTER_ADDR it is a variable of something else.
  EXPECT_EQ(resolve_environment(from({{"RANK", "captain"}})).size, 1);
  // A batch script exports WORLD_SIZE for programs that take their rank from Slurm.
  EXPECT_EQ(resolve_environment(from(joined(kSrun, {{"WORLD_SIZE", "2"}}))).launcher, "srun");
  EXPECT_EQ(resolve_environment(from(joined(kOpenMpi, {{"WORLD_SIZE", "4"}}))).rank, 3);
}

TEST(Environment, ABatchScriptIsNoStepOfSrun) {
  Variables batch{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}};
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

TEST(Environment, KnowsWhatJsrunGives) {
  const RankEnvironment rank = resolve_environment(from({{"JSM_NAMESPACE_SIZE", "4"},
                                                         {"JSM_NAMESPACE_RANK", "3"},
                                                         {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                                                         {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                                                         {"OMPI_COMM_WORLD_SIZE", "4"},
                                                         {"OMPI_COMM_WORLD_RANK", "3"},
                                                         {"PMIX_RANK", "3"},
                                                         {"LSB_JOBID", "1234"}}));
  EXPECT_EQ(rank.launcher, "jsrun");
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_size, 2);
  EXPECT_FALSE(rank.meeting) << "they meet over MPI";
}

TEST(Environment, PmixAloneStatesNoSize) {
  EXPECT_THAT(refusal_of({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-node07-1@1"}}),
              HasSubstr("PMIX_RANK=1 means several processes, but PMIx has no variable"));
  EXPECT_EQ(resolve_environment(from({{"PMIX_RANK", "0"}})).size, 1);
  EXPECT_EQ(resolve_environment(from(joined(kSrun, {{"PMIX_RANK", "1"}}))).launcher, "srun");
}

TEST(Environment, KnowsWhatAnIndexedJobGives) {
  const Variables pod = {{"JOB_COMPLETION_INDEX", "2"}, {"TRIREME_JOB_COMPLETIONS", "4"}};
  const RankEnvironment rank =
      resolve_environment(from(joined(pod, {{"TRIREME_JOB_FIRST_HOST", "gpt-0.gpt"}})));
  EXPECT_EQ(rank.launcher, "Indexed Job");
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_rank, 0);
  EXPECT_EQ(rank.local_size, 1);
  ASSERT_TRUE(rank.meeting);
  EXPECT_EQ(rank.meeting->host, "gpt-0.gpt");
  EXPECT_FALSE(rank.meeting->one_host);
  EXPECT_THAT(refusal_of(pod), HasSubstr("TRIREME_JOB_FIRST_HOST is not set"));
  EXPECT_THAT(refusal_of({{"TRIREME_JOB_COMPLETIONS", "4"}}),
              HasSubstr("JOB_COMPLETION_INDEX is not set"));
  EXPECT_THAT(refusal_of({{"JOB_COMPLETION_INDEX", "4"}, {"TRIREME_JOB_COMPLETIONS", "4"}}),
              HasSubstr("name no rank"));
  // Pods of a Job that says nothing more are independent.
  EXPECT_EQ(resolve_environment(from({{"JOB_COMPLETION_INDEX", "2"}})).size, 1);
}

// The torch runtime of Kubeflow's trainer sets the options of torchrun, which need not run.
TEST(Environment, KnowsWhatATrainJobGives) {
  const Variables pod{{"PET_NNODES", "4"},
                      {"PET_NODE_RANK", "2"},
                      {"PET_NPROC_PER_NODE", "1"},
                      {"PET_MASTER_ADDR", "gpt-node-0-0.gpt"},
                      {"PET_MASTER_PORT", "29400"}};
  const RankEnvironment rank = resolve_environment(from(pod));
  EXPECT_EQ(rank.launcher, "TrainJob");
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_size, 1);
  EXPECT_EQ(rank.meeting->host, "gpt-node-0-0.gpt");
  EXPECT_FALSE(rank.meeting->one_host);
  Variables other = pod;
  other["PET_NPROC_PER_NODE"] = "auto";
  EXPECT_THAT(refusal_of(other), HasSubstr("PET_NPROC_PER_NODE=auto means several processes"));
  EXPECT_EQ(resolve_environment(from(joined(other, torchrun("9", "16", "4")))).launcher,
            "torchrun");
  other = pod;
  other.erase("PET_MASTER_ADDR");
  EXPECT_THAT(refusal_of(other), HasSubstr("do not say where they meet"));
  other = pod;
  other.erase("PET_NODE_RANK");
  EXPECT_THAT(refusal_of(other), HasSubstr("PET_NODE_RANK is not set"));
}

// The operator names evaluators to themselves only.
// With enableDynamicWorker, a worker is told its own address and the parameter servers'.
TEST(Environment, OfLaunchersThatAgreeTheMoreSpecificOneIsTaken) {
  const Variables by_hand{
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node07"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(resolve_environment(from(joined(kOpenMpi, by_hand))).launcher, "mpirun (Open MPI)");
  const Variables pmi2{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};  // srun --mpi=pmi2
  EXPECT_EQ(resolve_environment(from(joined(kSrun, pmi2))).launcher, "mpirun (MPICH)");
}

TEST(Environment, LaunchersThatDisagreeAreRefusedWithTheirValues) {
  // `srun -n 2 torchrun --standalone --nproc-per-node 4`: two jobs of four ranks.
  EXPECT_THAT(refusal_of(joined(kSrun, torchrun("3", "4", "4"))),
              AllOf(HasSubstr("torchrun says rank 3 of 4 (RANK=3, WORLD_SIZE=4), but srun says "
                              "rank 1 of 2 (SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2)"),
                    HasSubstr("set TRIREME_ENVIRONMENT to torchrun or srun")));
  // The same size, another rank; set by hand.
  EXPECT_THAT(refusal_of(joined(kSrun, {{"RANK", "0"},
                                        {"WORLD_SIZE", "2"},
                                        {"MASTER_ADDR", "node07"},
                                        {"MASTER_PORT", "29500"}})),
              HasSubstr("torchrun says rank 0 of 2"));
  EXPECT_THAT(
      refusal_of(joined(kOpenMpi, tf_config(R"({"type":"chief","index":0})"))),
      AllOf(HasSubstr("mpirun (Open MPI) says rank 3 of 4"),
            HasSubstr("TFJob says rank 0 of 3 (TF_CONFIG)"), HasSubstr("to openmpi or tfjob")));
}

TEST(Environment, ALauncherInsideAnotherNumbersTheRanks) {
  // One torchrun on each node, of four ranks each.
  RankEnvironment rank = resolve_environment(from(joined(kSrun, torchrun("5", "8", "4"))));
  EXPECT_EQ(rank.launcher, "torchrun");
  EXPECT_EQ(rank.size, 8);
  // mpirun's daemons are a step of srun with one task on each node.
  rank = resolve_environment(from(joined(kSrun, kOpenMpi)));
  EXPECT_EQ(rank.launcher, "mpirun (Open MPI)");
  EXPECT_EQ(rank.rank, 3);
  // torchrun in each process of mpirun -n 4.
  rank = resolve_environment(from(joined(kOpenMpi, torchrun("5", "8", "2"))));
  EXPECT_EQ(rank.launcher, "torchrun");
}

TEST(Environment, ARefusalCountsUnlessAMoreSpecificLauncherStatesARank) {
  const Variables nowhere{{"RANK", "1"}, {"WORLD_SIZE", "2"}};  // without MASTER_ADDR
  EXPECT_THAT(refusal_of(joined(kSrun, nowhere)), HasSubstr("MASTER_ADDR"));
  const Variables batch{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(resolve_environment(from(joined(batch, kOpenMpi))).launcher, "mpirun (Open MPI)");
}

TEST(Environment, AVariableNamesTheLauncherThatCounts) {
  Variables both = joined(kSrun, torchrun("3", "4", "4"));
  const auto chosen = [&](const char* key) {
    both["TRIREME_ENVIRONMENT"] = key;
    return resolve_environment(from(both));
  };
  EXPECT_EQ(chosen("srun").size, 2);
  EXPECT_EQ(chosen("torchrun").size, 4);
  EXPECT_EQ(chosen("alone").size, 1);
  both["TRIREME_ENVIRONMENT"] = "openmpi";
  EXPECT_THAT(refusal_of(both), HasSubstr("no variable of mpirun (Open MPI) is set"));
  both["TRIREME_ENVIRONMENT"] = "slurm";
  EXPECT_THAT(
      refusal_of(both),
      AllOf(
          HasSubstr("TRIREME_ENVIRONMENT=slurm names no launcher"),
          HasSubstr(
              "alone, jsrun, openmpi, mpich, torchrun, srun, tfjob, trainjob, indexedjob, pmix")));
  both["TRIREME_COORDINATOR"] = "127.0.0.1:5";  // `trireme launch` decides alone
  both["TRIREME_RANK"] = "1";
  both["TRIREME_SIZE"] = "3";
  EXPECT_EQ(resolve_environment(from(both)).size, 3);
}

TEST(Environment, TheReportSaysWhatWasFoundAndWhy) {
  EnvironmentReport report = report_environment(from({}));
  EXPECT_EQ(report.found, "none: one process");
  EXPECT_THAT(report.reasons, ElementsAre());
  report = report_environment(from(joined(kSrun, {{"WORLD_SIZE", "1"}, {"RANK", "0"}})));
  EXPECT_EQ(report.found, "srun: rank 1 of 2, to meet at node07");
  EXPECT_THAT(report.reasons,
              ElementsAre("torchrun: RANK=0, WORLD_SIZE=1; states no rank",
                          "srun: SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2; rank 1 of 2"));
  report = report_environment(
      from({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  EXPECT_THAT(report.found, HasSubstr("srun has not started this process"));
  EXPECT_THAT(report.reasons,
              ElementsAre(HasSubstr("srun cannot be used: Slurm's allocation has 4")));
}

TEST(Environment, IsOneProcessWhereLaunchersAreIgnored) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS",
                           "SLURM_STEP_NUM_TASKS", "JSM_NAMESPACE_SIZE", "PMIX_RANK"}) {
    setenv(name, "2", 1);
  }
  for (const char* name : {"RANK", "SLURM_PROCID"}) setenv(name, "1", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("TF_CONFIG", R"({"task": {}})", 1);
  setenv("TRIREME_ENVIRONMENT", "srun", 1);
  ignore_launchers();
  const RankEnvironment rank = resolve_environment();
  for (const char* name : {"RANK", "SLURM_PROCID", "MASTER_ADDR"}) unsetenv(name);
  EXPECT_EQ(rank.size, 1);
  EXPECT_EQ(rank.launcher, "");
}

}  // namespace
}  // namespace trireme::rendezvous
