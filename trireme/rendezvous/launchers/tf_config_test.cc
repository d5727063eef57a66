// The places and roles that TF_CONFIG gives, in the forms in which a TFJob's operator writes it.
#include "trireme/rendezvous/launchers/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/rendezvous/launchers/environment_test.h"

namespace trireme::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TFConfig, SaysTheRank) {
  RankEnvironment rank = resolve_environment(from(tf_config(R"({"type":"worker","index":1})")));
  EXPECT_EQ(rank.launcher, "TFJob");
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.size, 3);
  EXPECT_EQ(rank.local_rank, 0);
  EXPECT_EQ(rank.local_size, 1);
  ASSERT_TRUE(rank.meeting);
  EXPECT_EQ(rank.meeting->host, "mnist-chief-0.ns.svc");
  EXPECT_EQ(rank.meeting->port, 2222);
  EXPECT_FALSE(rank.meeting->one_host);
  rank = resolve_environment(from(tf_config(R"({"type":"chief","index":0})")));
  EXPECT_EQ(rank.rank, 0);
  EXPECT_EQ(rank.meeting->name, "TF_CONFIG mnist-chief-0.ns.svc:2222");
  // Without a chief, on one host.
  rank = resolve_environment(
      from(tf_config(R"({"type":"worker","index":1})",
                     R"("worker":["localhost:1","localhost:2"],"ps":["localhost:3"])")));
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.size, 2);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_size, 2);
  EXPECT_EQ(rank.meeting->port, 1);
  EXPECT_TRUE(rank.meeting->one_host);
  // "master" is the chief's old name.
  rank = resolve_environment(from(
      tf_config(R"({"type":"worker","index":0})", R"("master":["a:2222"],"worker":["b:2222"])")));
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.meeting->host, "a");
}

TEST(TFConfig, SaysTheRole) {
  const std::string cluster = R"("chief":["c:2222"],"worker":["w0:2222","w1:2222"],)"
                              R"("ps":["p0:2222","p1:2222"])";
  const auto place_of = [&](const std::string& task) {
    return resolve_environment(from(tf_config(task, cluster)));
  };
  const Roles roles{.workers = 3, .servers = 2};
  RankEnvironment place = place_of(R"({"type":"chief","index":0})");
  EXPECT_TRUE(place.chief);
  EXPECT_EQ(place.role, Role::Worker);
  EXPECT_EQ(place.roles(), roles);
  EXPECT_EQ(place.process(), 0);
  place = place_of(R"({"type":"worker","index":1})");
  EXPECT_FALSE(place.chief);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 3);
  place = place_of(R"({"type":"ps","index":1})");
  EXPECT_EQ(place.role, Role::Server);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.process(), 4);
  EXPECT_EQ(place.roles(), roles);
  EXPECT_EQ(place.meeting->host, "c");
  place = place_of(R"({"type":"evaluator","index":0})");
  EXPECT_EQ(place.role, Role::Evaluator);
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.process(), 5);
  EXPECT_EQ(place.meeting->host, "c");
  EXPECT_TRUE(place.meeting->admits_evaluator);
  EXPECT_EQ(report_environment(from(tf_config(R"({"type":"ps","index":1})", cluster))).found,
            "TFJob: server 1 of 2, to meet at c");
  EXPECT_EQ(report_environment(from(tf_config(R"({"type":"worker","index":0})", cluster))).found,
            "TFJob: rank 1 of 3 beside 2 servers, to meet at c");
  EXPECT_EQ(report_environment(from(tf_config(R"({"type":"evaluator","index":0})", cluster))).found,
            "TFJob: the evaluator, to meet at c");
  // One worker is alone, unless it has a server.
  const std::string served = R"("worker":["w0:2222"],"ps":["p0:2222"])";
  EXPECT_EQ(resolve_environment(from(tf_config(R"({"type":"worker","index":0})", served))).launcher,
            "TFJob");
  // A contradiction: the same rank of as many workers, but others know nothing of servers.
  EXPECT_THAT(refusal_of(joined({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "1"}},
                                tf_config(R"({"type":"worker","index":0})", cluster))),
              AllOf(HasSubstr("mpirun (Open MPI) says rank 1 of 3 ("),
                    HasSubstr("TFJob says rank 1 of 3 beside 2 servers (TF_CONFIG)")));
}

TEST(TFConfig, OfOneProcessIsAlone) {
  for (const Variables& one :
       {tf_config(R"({"type":"worker","index":0})", R"("worker":["a:2222"])"),
        Variables{{"TF_CONFIG", "{}"}}, Variables{{"TF_CONFIG", R"({"environment":"cloud"})"}},
        Variables{{"TF_CONFIG", ""}}}) {
    const RankEnvironment rank = resolve_environment(from(one));
    EXPECT_EQ(rank.size, 1);
    EXPECT_EQ(rank.launcher, "");
  }
}

TEST(TFConfig, ThatNamesNoRankIsRefusedWithThePlaceInIt) {
  const std::string worker = R"({"type":"worker","index":0})";
  const std::pair<Variables, const char*> cases[] = {
      {{{"TF_CONFIG", "{\"cluster\":\n {,}}"}}, "is not JSON: parse error at line 2, column 3"},
      {{{"TF_CONFIG", "[]"}}, "is not a JSON object"},
      {{{"TF_CONFIG", R"({"cluster":{"worker":["a:1"]}})"}}, "no string at /task/type"},
      {tf_config(R"({"type":"worker","index":-1})"), "no number from 0 at /task/index"},
      {tf_config(R"({"type":"worker","index":"0"})"), "no number from 0 at /task/index"},
      {tf_config(R"({"type":"worker","index":2})"),
       "2 at /task/index, but /cluster/worker has 2 entries"},
      {tf_config(R"({"type":"master","index":0})"), "master 0, but has no /cluster/master"},
      {tf_config(R"({"type":"boss","index":0})"), "\"boss\" at /task/type, which is not chief"},
      {tf_config(R"({"type":"ps","index":0})"), "ps 0, but has no /cluster/ps"},
      {tf_config(R"({"type":"ps","index":1})", R"("worker":["a:1"],"ps":["b:1"])"),
       "1 at /task/index, but /cluster/ps has 1 entries"},
      {tf_config(R"({"type":"evaluator","index":1})"), "a job has one evaluator, number 0"},
      {tf_config(R"({"type":"evaluator","index":0})", R"("worker":["a:1"])"),
       "the evaluator of one worker"},
      {tf_config(worker, R"("worker":["a:1"],"evaluator":["b:1","c:1"])"), "several evaluators"},
      {tf_config(R"({"type":"ps","index":0})", R"("ps":["a:1"])"), "no chief and no worker"},
      {tf_config(worker, R"("worker":["a:1","b:1","a:1"])"), "a:1 at /cluster/worker/2"},
      {tf_config(worker, R"("worker":["a:1"],"ps":["a:1"])"), "a:1 at /cluster/ps/0"},
      {tf_config(worker, R"("worker":["a"])"), "no \"host:port\" at /cluster/worker/0"},
      {tf_config(worker, R"("worker":["a:1",7])"), "no \"host:port\" at /cluster/worker/1"},
      {tf_config(worker, R"("worker":{"0":"a:1"})"), "no list at /cluster/worker"},
      {tf_config(worker, R"("worker":["a:1"],"chief":["b:1"],"master":["c:1"])"),
       "several tasks at /cluster/chief and /cluster/master"}};
  for (const auto& [variables, words] : cases) {
    EXPECT_THAT(refusal_of(variables), AllOf(HasSubstr("TF_CONFIG "), HasSubstr(words)));
  }
}

TEST(TFConfig, ASparseOneStatesTheSizeOnlyIfItNamesAllWorkers) {
  const auto sparse = [](const std::string& cluster, const std::string& type) {
    return Variables{{"TF_CONFIG", R"({"sparseCluster":)" + cluster + R"(,"task":{"type":")" +
                                       type + R"(","index":1}})"}};
  };
  EXPECT_THAT(refusal_of(sparse(R"({"worker":{"1":"w1:2222"},"ps":null})", "worker")),
              AllOf(HasSubstr("names worker 1 and not all workers: it does not say how many ranks"),
                    HasSubstr("enableDynamicWorker")));
  EXPECT_THAT(refusal_of(sparse(R"({"worker":{"0":"w1:2222"},"ps":[]})", "worker")),
              HasSubstr("worker 1, but has no /sparseCluster/worker/1"));
  EXPECT_THAT(refusal_of(sparse(R"({"worker":{"1":"w1"},"ps":[]})", "worker")),
              HasSubstr("no \"host:port\" at /sparseCluster/worker/1"));
  EXPECT_THAT(refusal_of(sparse(R"({"worker":{},"ps":["p1:2222"]})", "ps")),
              HasSubstr("names ps 1 and not all workers"));
  EXPECT_THAT(refusal_of(sparse(R"({"worker":{"0":"a:1","2":"c:1"}})", "worker")),
              HasSubstr("no /sparseCluster/worker/1"));
  // It says the size if it names them all.
  const RankEnvironment place = resolve_environment(
      from(sparse(R"({"worker":{"1":"w1:2222","0":"w0:2222"},"ps":["p0:2222"]})", "worker")));
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.roles(), (Roles{.workers = 2, .servers = 1}));
  EXPECT_EQ(place.meeting->host, "w0");
}

// As the training operator writes it with enableDynamicWorker for task `index`, and what the pods' templates
// set.
Variables sparse_config(const std::string& cluster, const std::string& type, int index,
                        const Variables& others = {{"TRIREME_WORKERS", "4"},
                                                   {"TRIREME_SERVERS", "2"}}) {
  return joined({{"TF_CONFIG", R"({"sparseCluster":{)" + cluster + R"(},"task":{"type":")" + type +
                                   R"(","index":)" + std::to_string(index) + "}}"}},
                others);
}

const std::string kWorker1 = R"("worker":{"1":"job-worker-1.ns.svc:2222"},)"
                             R"("ps":["job-ps-0.ns.svc:2222","job-ps-1.ns.svc:2222"])";

std::string server_alone(const std::string& address) {
  return R"("worker":{},"ps":[")" + address + R"("])";
}

TEST(TFConfig, ASparseOneIsAPlaceInAnElasticJobBesideWhoseServer0TheCoordinatorIs) {
  Variables variables = joined(sparse_config(kWorker1, "worker", 1, {{"TRIREME_WORKERS", "4"}}),
                               {{"TRIREME_JOB_SECRET_FILE", "secret"}});
  RankEnvironment place = resolve_environment(from(variables));
  EXPECT_TRUE(place.elastic);
  EXPECT_TRUE(place.coordinator_beside_server);
  EXPECT_FALSE(place.starts_coordinator());
  EXPECT_EQ(place.launcher, "");
  EXPECT_FALSE(place.meeting);
  EXPECT_EQ(place.coordinator, "job-ps-0.ns.svc:2222");
  EXPECT_EQ(place.secret_file, "secret");
  EXPECT_EQ(place.role, Role::Worker);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.local_size, 1);
  EXPECT_EQ(place.roles(), (Roles{.workers = 4, .servers = 2}));
  EXPECT_EQ(report_environment(from(variables)).found,
            "TFJob: rank 1 of 4 beside 2 servers, to meet at job-ps-0.ns.svc:2222");
  // A server is told nothing of the others.
  variables = sparse_config(server_alone("job-ps-1.ns.svc:2222"), "ps", 1);
  place = resolve_environment(from(variables));
  EXPECT_EQ(place.role, Role::Server);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.process(), 5);
  EXPECT_EQ(place.coordinator, "job-ps-0.ns.svc:2222");
  EXPECT_FALSE(place.starts_coordinator());
  EXPECT_EQ(report_environment(from(variables)).found,
            "TFJob: server 1 of 2, to meet at job-ps-0.ns.svc:2222");
  place = resolve_environment(from(sparse_config(server_alone("job-ps-0.ns.svc:2222"), "ps", 0)));
  EXPECT_TRUE(place.starts_coordinator());
  EXPECT_EQ(place.coordinator, "job-ps-0.ns.svc:2222");
  // The job's name may look like a server's, and the cluster may have a domain.
  place = resolve_environment(
      from(sparse_config(server_alone("a-ps-12-ps-12.ns.svc.cluster.local:7"), "ps", 12,
                         {{"TRIREME_WORKERS", "1"}, {"TRIREME_SERVERS", "13"}})));
  EXPECT_EQ(place.coordinator, "a-ps-12-ps-0.ns.svc.cluster.local:7");
}

TEST(TFConfig, ASparseOneIsAlsoForWorkersOnTheirOwn) {
  const RankEnvironment place = resolve_environment(from(sparse_config(
      R"("worker":{"3":"w3:1"},"ps":["p0:1"])", "worker", 3,
      {{"TRIREME_ELASTIC", "workers"}, {"TRIREME_WORKERS", "2"}, {"TRIREME_MORE_WORKERS", "2"}})));
  EXPECT_TRUE(place.on_its_own);
  EXPECT_FALSE(place.elastic);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.process(), 4);
  EXPECT_EQ(place.roles(), (Roles{.workers = 2, .servers = 1, .more_workers = 2}));
}

TEST(TFConfig, ASparseOneIsThePlaceInTheJobOfACoordinatorThatIsNamed) {
  const auto with = [](const std::string& cluster, const std::string& type, Variables others) {
    return joined(sparse_config(cluster, type, 1, others),
                  {{"TRIREME_COORDINATOR", "gpt-coordinator:29400"}});
  };
  RankEnvironment place = resolve_environment(from(
      with(server_alone("p1:2222"), "ps", {{"TRIREME_WORKERS", "4"}, {"TRIREME_SERVERS", "2"}})));
  EXPECT_EQ(place.coordinator, "gpt-coordinator:29400");
  EXPECT_FALSE(place.coordinator_beside_server);
  EXPECT_EQ(place.process(), 5);
  place = resolve_environment(
      from(with(R"("worker":{"1":"w1:2222"},"ps":null)", "worker", {{"TRIREME_WORKERS", "4"}})));
  EXPECT_TRUE(place.elastic);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.roles(), Roles{.workers = 4});
  // TF_CONFIG does not count for a process of `trireme launch`.
  place = resolve_environment(
      from(with(kWorker1, "worker", {{"TRIREME_RANK", "2"}, {"TRIREME_SIZE", "3"}})));
  EXPECT_FALSE(place.elastic);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 3);
}

// TRIREME_ELASTIC asks for it. All tasks and their number are known.
TEST(TFConfig, ADenseOneMayBeAPlaceInAnElasticJob) {
  const std::string cluster = R"("chief":["c:1"],"worker":["w0:1","w1:1"],"ps":["p0:1","p1:1"])";
  const auto place_of = [&](const std::string& task, const Variables& others) {
    return resolve_environment(from(joined(tf_config(task, cluster), others)));
  };
  const std::string worker = R"({"type":"worker","index":1})", ps = R"({"type":"ps","index":0})";
  const Variables elastic{{"TRIREME_ELASTIC", "1"}};
  RankEnvironment place = place_of(worker, elastic);
  EXPECT_TRUE(place.elastic);
  EXPECT_TRUE(place.coordinator_beside_server);
  EXPECT_EQ(place.launcher, "");
  EXPECT_FALSE(place.meeting);
  EXPECT_EQ(place.coordinator, "p0:1");
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 3);
  EXPECT_EQ(place.local_size, 1);
  EXPECT_EQ(place.roles(), (Roles{.workers = 3, .servers = 2}));
  EXPECT_TRUE(place_of(R"({"type":"chief","index":0})", elastic).chief);
  place = place_of(ps, elastic);
  EXPECT_TRUE(place.starts_coordinator());
  EXPECT_EQ(place.process(), 3);
  EXPECT_EQ(place.size, 2);
  place = place_of(
      worker,
      {{"TRIREME_ELASTIC", "workers"}, {"TRIREME_WORKERS", "2"}, {"TRIREME_MORE_WORKERS", "1"}});
  EXPECT_TRUE(place.on_its_own);
  EXPECT_EQ(place.roles(), (Roles{.workers = 2, .servers = 2, .more_workers = 1}));
  EXPECT_TRUE(place_of(worker, {{"TRIREME_ELASTIC", "0"}}).meeting);
  EXPECT_EQ(place_of(worker, joined(elastic, {{"TRIREME_COORDINATOR", "gpt:29400"}})).coordinator,
            "gpt:29400");
  const std::string both = R"("worker":["w0:1","w1:1"])";
  const std::pair<Variables, const char*> refused[] = {
      {tf_config(worker, both), "TRIREME_ELASTIC is set, but TF_CONFIG has no ps"},
      {tf_config(R"({"type":"evaluator","index":0})", cluster), "`trireme eval RUN --follow`"},
      {tf_config(R"({"type":"worker","index":2})", cluster), "/cluster/worker has 2 entries"},
      {joined(tf_config(ps, cluster), {{"TRIREME_SERVERS", "3"}}),
       "names 2 ps, but TRIREME_SERVERS=3"}};
  for (const auto& [variables, words] : refused)
    EXPECT_THAT(refusal_of(joined(variables, elastic)), HasSubstr(words));
  place = resolve_environment(from(
      joined(tf_config(worker, both), joined(elastic, {{"TRIREME_COORDINATOR", "gpt:29400"}}))));
  EXPECT_EQ(place.roles(), Roles{.workers = 2});
}

TEST(TFConfig, ASparseOneThatLeavesTheJobOpenIsRefused) {
  const std::string server = server_alone("job-ps-1.ns.svc:2222");
  const std::pair<Variables, const char*> cases[] = {
      {sparse_config(R"("worker":{},"ps":[])", "chief", 0), "Leave Chief and Master out"},
      {sparse_config(R"("worker":{},"ps":[])", "evaluator", 0), "`trireme eval RUN --follow`"},
      {sparse_config(R"("worker":{"0":"w0:2222"},"ps":null)", "worker", 0), "Give the TFJob PS"},
      {sparse_config(R"("worker":{"0":"w0:2222"},"ps":[7])", "worker", 0),
       "no \"host:port\" at /sparseCluster/ps/0"},
      {sparse_config(R"("worker":{"0":"w0:2222"},"ps":{})", "worker", 0),
       "no list at /sparseCluster/ps"},
      {sparse_config(kWorker1, "worker", 1, {}), "set TRIREME_WORKERS to the most workers"},
      {sparse_config(kWorker1, "worker", 1, {{"TRIREME_WORKERS", "many"}}),
       "TRIREME_WORKERS=many is not a number"},
      {sparse_config(kWorker1, "worker", 1, {{"TRIREME_WORKERS", "1"}}),
       "worker 1, but at most 1 worker may be there (TRIREME_WORKERS=1)"},
      {sparse_config(kWorker1, "worker", 1,
                     {{"TRIREME_WORKERS", "1"}, {"TRIREME_MORE_WORKERS", "1"}}),
       "worker 1, but at most 1 worker may be there"},
      {sparse_config(kWorker1, "worker", 1, {{"TRIREME_WORKERS", "4"}, {"TRIREME_SERVERS", "1"}}),
       "names 2 ps, but TRIREME_SERVERS=1"},
      {sparse_config(server, "ps", 1, {{"TRIREME_WORKERS", "4"}}),
       "ps 1, but TRIREME_SERVERS is not set"},
      {sparse_config(server, "ps", 1, {{"TRIREME_WORKERS", "4"}, {"TRIREME_SERVERS", "1"}}),
       "ps 1, but TRIREME_SERVERS=1"},
      {sparse_config(server, "ps", 2, {{"TRIREME_WORKERS", "4"}, {"TRIREME_SERVERS", "3"}}),
       "the name does not begin with JOB-ps-2"},
      {sparse_config(server_alone("-ps-1.ns.svc:2222"), "ps", 1), "does not begin with JOB-ps-1"},
      {joined(sparse_config(kWorker1, "worker", 1), {{"TRIREME_ELASTIC", "2:4"}}),
       "TRIREME_ELASTIC=2:4 is not 0, 1 or workers"}};
  for (const auto& [variables, words] : cases) EXPECT_THAT(refusal_of(variables), HasSubstr(words));
}

}  // namespace
}  // namespace trireme::rendezvous
