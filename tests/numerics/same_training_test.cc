// Same training on any layout (docs/numerics.md), through DataParallel and Strategy, in real
// processes: eight steps, then the hash of the weights and the bits of the loss curve. Each layout
// trains every case with one algorithm and one kind of sharding, others than the next layout: over
// the layouts every case meets each of them. `make soak` (TRIREME_EVERY_TRAINING) trains every case
// with each of them on every layout, for 20 steps.
#include "tests/numerics/same_training.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/numerics/training.h"
#include "trireme/base/check.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/sync/sync_plan.h"

namespace trireme {
namespace {

using numerics::Case;
using numerics::Record;

bool every_training() { return std::getenv("TRIREME_EVERY_TRAINING") != nullptr; }
int many_steps() { return every_training() ? 20 : 8; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.name = "blocks-gpt", .steps = many_steps()},
      {.name = "blocks-gpt-bf16", .steps = 5},
      {.name = "blocks-gpt-fp16", .steps = 5},
      {.name = "blocks-tied", .steps = many_steps()},
      {.name = "blocks-mlp", .steps = many_steps()},
      {.name = "blocks-dropout", .steps = 5},
      {.name = "module-tied", .steps = many_steps()},
      {.name = "module-mlp", .steps = many_steps()},
      {.name = "blocks-resnet", .steps = 3},
      {.name = "blocks-bert", .steps = 5},
  };
  return all;
}

// Every parallel.sync that shards, through DataParallel too if possible: results of one name must
// agree with plain's, also on one rank.
const std::vector<std::string>& sharded_syncs() {
  static const auto all = parallel::level_names(&parallel::shards_state);
  return all;
}
const std::vector<Case>& sharded_cases() {
  static const std::vector<Case> all = {
      {.name = "blocks-gpt", .steps = many_steps()},
      {.name = "blocks-gpt-bf16", .steps = 5},
      {.name = "blocks-gpt-fp16", .steps = 5},
      {.name = "blocks-tied", .steps = many_steps()},
      {.name = "module-tied", .steps = many_steps()},
      {.name = "blocks-resnet", .steps = 3},
      {.name = "blocks-bert", .steps = 5},
      {.name = "module-mlp-short", .samples = 10, .batch = 4, .micro = 1, .steps = 6},
  };
  return all;
}

// The last batch of an epoch has two micro-batches: one of three ranks gets none.
const std::vector<Case>& short_cases() {
  static const std::vector<Case> all = {
      {.name = "module-mlp-short", .samples = 10, .batch = 4, .micro = 1, .steps = 6},
      {.name = "module-mlp-short-2",
       .samples = 10,
       .batch = 4,
       .micro = 1,
       .steps = 6,
       .workers = 2},
  };
  return all;
}

// 12 micro-batches per step.
const std::vector<Case>& lane_cases() {
  static const std::vector<Case> all = {
      {.name = "blocks-gpt", .steps = 5},
      {.name = "blocks-gpt-bf16", .steps = 5},
      {.name = "blocks-gpt-fp16", .steps = 5},
      {.name = "blocks-tied", .steps = 5},
      {.name = "blocks-dropout", .steps = 5},
      {.name = "blocks-gpt-dropout", .steps = 5},
      {.name = "blocks-dropout-foreign", .steps = 5},
      {.name = "blocks-resnet", .steps = 3},
      {.name = "blocks-bert", .steps = 5},
  };
  return all;
}

parallel::ReduceTerms with_algorithm(std::string algorithm) {
  return [algorithm](comm::Communicator& world, std::span<const comm::Term> terms,
                     const kernel::LeafShares& leaves, Buffer out, std::string_view label) {
    return world.all_reduce(terms, leaves, std::move(out),
                            {.label = label, .algorithm = algorithm});
  };
}

// Wrong on purpose: each rank adds its terms from left to right, then ranks are added in order.
Work rank_order_reduce(comm::Communicator& world, std::span<const comm::Term> terms,
                       const kernel::LeafShares&, Buffer out, std::string_view label) {
  const auto add = [](void* into, const void* from, const Buffer& like) {
    if (like.dtype == DType::F32) {
      for (std::size_t i = 0; i < like.count; ++i)
        static_cast<float*>(into)[i] += static_cast<const float*>(from)[i];
    } else {
      for (std::size_t i = 0; i < like.count; ++i)
        static_cast<double*>(into)[i] += static_cast<const double*>(from)[i];
    }
  };
  if (terms.empty()) std::memset(out.data, 0, out.bytes());
  if (!terms.empty() && terms[0].value.data != out.data)
    std::memcpy(out.data, terms[0].value.data, out.bytes());
  for (std::size_t i = 1; i < terms.size(); ++i) add(out.data, terms[i].value.data, out);
  auto all = std::make_shared<std::vector<std::byte>>(out.bytes() *
                                                      static_cast<std::size_t>(world.size()));
  Buffer gathered{all->data(), out.count * static_cast<std::size_t>(world.size()), out.dtype};
  return world.all_gather(out, gathered, {.label = label}).then([all, out, add] {
    std::memcpy(out.data, all->data(), out.bytes());
    for (std::size_t at = out.bytes(); at < all->size(); at += out.bytes())
      add(out.data, all->data() + at, out);
  });
}

void print(const Case& which, const std::string& algorithm, const Record& record) {
  const std::string key = which.name + " " + algorithm;
  // The same name for both numbers of workers: they must agree too.
  const std::string name =
      which.workers > 0 ? which.name.substr(0, which.name.size() - 2) + " " + algorithm + "-workers"
                        : key;
  std::printf("RESULT %s %s %s\n", name.c_str(), record.hash.c_str(), record.losses.c_str());
  for (const std::string& item : record.computed)
    std::printf("COMPUTED %s %s\n", name.c_str(), item.c_str());
}

// The index at which a layout begins in a list that the layouts share out.
std::size_t turn_of(Job& job) {
  const std::string_view transport = job.world().transport_name();
  const std::size_t shift = transport == "tcp" ? 2 : transport == "mpi" ? 1 : 0;
  return static_cast<std::size_t>(job.size()) + shift;
}

// All algorithms on the first case, and one of three on each other; over MPI only one.
void train_with_algorithms(Job& job, bool mpi) {
  std::vector<std::string> usual = {"ring"}, all = {"ring"};
  if (!mpi) {
    usual.push_back("naive");
    if (job.world().transport_name() != "tcp") usual.push_back("direct");
    all = usual;
    for (const comm::AlgorithmEntry* entry : comm::algorithms_of(comm::OpKind::AllReduce))
      if (std::find(all.begin(), all.end(), entry->name) == all.end()) all.push_back(entry->name);
  }
  for (std::size_t at = 0; at < cases().size(); ++at) {
    std::vector<std::string> algorithms = at == 0 ? all : usual;
    if (at > 0 && !every_training()) algorithms = {usual[(at + turn_of(job)) % usual.size()]};
    for (const std::string& algorithm : algorithms)
      print(cases()[at], algorithm, train(job, cases()[at], with_algorithm(algorithm)));
  }
}

void train_sharded(Job& job) {
  for (std::size_t at = 0; at < sharded_cases().size(); ++at) {
    Case which = sharded_cases()[at];
    std::vector<std::string> syncs = sharded_syncs();
    if (which.name.starts_with("module")) std::erase_if(syncs, parallel::shards_weights);
    if (!every_training()) syncs = {syncs[(at + turn_of(job)) % syncs.size()]};
    for (const std::string& sync : syncs) {
      which.sync = sync;
      print(which, sync, train(job, which));
    }
  }
}

// Arguments: "all", "mpi" (fewer algorithms), "wrong", "seed" or "lanes N".
TRIREME_PROCESS(train) {
  Job job(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "all";
  if (what == "wrong") {
    for (const Case& which : cases())
      print(which, "rank-order", train(job, which, rank_order_reduce));
    return 0;
  }
  if (what == "seed") {
    for (Case which : cases()) {
      which.seed = 2;
      print(which, "auto", train(job, which));
    }
    return 0;
  }
  if (what == "lanes") {
    for (Case which : lane_cases()) {
      which.lanes = std::stoi(argv[2]);
      const Record record = train(job, which);
      print(which, "auto", record);
      const bool foreign = which.name.ends_with("foreign");
      TRIREME_CHECK(record.lanes == (foreign ? 1 : which.lanes));
      TRIREME_CHECK(record.lanes_note.empty() == (!foreign || which.lanes == 1));
    }
    return 0;
  }
  const bool mpi = what == "mpi";
  TRIREME_CHECK((!mpi || job.world().transport_name() == "mpi"));
  train_with_algorithms(job, mpi);
  for (const Case& which : short_cases()) print(which, "auto", train(job, which));
  train_sharded(job);
  return 0;
}

TEST(SameTraining, LinesOfALibraryAreNoResults) {
  std::istringstream lines(
      "RESULT gpt ring 0a1b 3f8\nCOMPUTED gpt ring 0:1\n"
      "[1795963674.216892] [vm:9427 :0] mpool.c:54 UCX WARN object 0x55 was not returned to mpool\n"
      "COMPUTED gpt ring 0:2\n");
  numerics::Results results;
  numerics::read_results(lines, results);
  EXPECT_EQ(results.of_case, (std::map<std::string, std::string>{{"gpt ring", "0a1b 3f8"}}));
  EXPECT_EQ(results.computed.at("gpt ring"), (std::multiset<std::string>{"0:1", "0:2"}));
}

TEST(SameTraining, OnOneRankOverAnyAlgorithm) {
  EXPECT_EQ(numerics::one_rank().size(), cases().size() + 1);
}
TEST(SameTraining, TwoRanksShm) { numerics::expect_same_training({2, "shm"}); }
TEST(SameTraining, TwoRanksTcp) { numerics::expect_same_training({2, "tcp"}); }
TEST(SameTraining, ThreeRanksShm) { numerics::expect_same_training({3, "shm"}); }
TEST(SameTraining, ThreeRanksTcp) { numerics::expect_same_training({3, "tcp"}); }
TEST(SameTraining, FourRanksShm) { numerics::expect_same_training({4, "shm"}); }
TEST(SameTraining, FourRanksTcp) { numerics::expect_same_training({4, "tcp"}); }

#ifdef TRIREME_MPIS
// Ranks started by mpirun, with MPI as transport: "openmpi", "mpich".
class SameTrainingOverMpi : public ::testing::TestWithParam<std::string> {};

TEST_P(SameTrainingOverMpi, TwoAndThreeRanks) {
  for (const int ranks : {2, 3}) {
    const std::string folder = ::testing::TempDir() + "trireme-same-" + std::to_string(getpid());
    std::filesystem::create_directory(folder);
    std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TRIREME_TEST_PROCESS=train"
        " TRIREME_COMM_TRANSPORT=mpi timeout -k 5 300 mpirun." +
        GetParam() + " -n " + std::to_string(ranks);
    if (GetParam() == "openmpi") command += " --oversubscribe";
    command += " sh -c 'exec \"$0\" mpi > " + folder + "/${PMI_RANK:-$OMPI_COMM_WORLD_RANK}' " +
               std::filesystem::read_symlink("/proc/self/exe").string();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    numerics::Results results;
    for (int rank = 0; rank < ranks; ++rank) {
      std::ifstream lines(folder + "/" + std::to_string(rank));
      EXPECT_TRUE(lines.is_open()) << rank;
      numerics::read_results(lines, results);
    }
    std::filesystem::remove_all(folder);
    EXPECT_EQ(by_case(results), numerics::one_rank()) << ranks << " ranks of " << GetParam();
  }
}

std::vector<std::string> mpis() {
  std::vector<std::string> names;
  std::istringstream list(TRIREME_MPIS);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Every, SameTrainingOverMpi, ::testing::ValuesIn(mpis()),
                         [](const auto& info) { return info.param; });
#endif

TEST(SameTraining, WithAnyNumberOfLanes) {
  const auto lanes = [](int ranks, const char* count) {
    return by_case(numerics::train_layout({ranks, "shm", {"lanes", count}}));
  };
  const auto one = lanes(1, "1");
  EXPECT_EQ(one.size(), lane_cases().size());
  EXPECT_NE(one.at("blocks-dropout"), one.at("blocks-tied"));
  EXPECT_NE(one.at("blocks-gpt-dropout"), one.at("blocks-gpt"));
  for (const auto& [ranks, count] : {std::pair{1, "2"}, {1, "4"}, {2, "2"}, {3, "4"}})
    EXPECT_EQ(lanes(ranks, count), one) << ranks << " ranks with " << count << " lanes";
}

TEST(SameTraining, TheHashSeesTheSeed) {
  for (const auto& [which, value] : by_case(numerics::train_layout({2, "shm", {"seed"}})))
    EXPECT_NE(value, numerics::one_rank().at(which)) << which;
}

// A few 16-bit gradients can add up in fp32 without rounding, in any order.
TEST(SameTraining, TheHashSeesTermsAddedInRankOrder) {
  for (const auto& [which, value] : by_case(numerics::train_layout({3, "shm", {"wrong"}}))) {
    if (which.ends_with("bf16") || which.ends_with("fp16")) continue;
    EXPECT_NE(value, numerics::one_rank().at(which)) << which;
  }
}

// A module adds a tied gradient inside autograd, blocks after the tree sum: close, not equal.
TEST(SameTraining, TheDoorsAgree) {
  Job job(0, nullptr);
  for (const auto& [blocks, module] :
       {std::pair{"blocks-tied", "module-tied"}, std::pair{"blocks-mlp", "module-mlp"}}) {
    const Record one = numerics::train(job, {.name = blocks});
    const Record other = numerics::train(job, {.name = module});
    EXPECT_EQ(one.applied, 20);
    for (const auto& [name, weight] : one.weights) {
      const std::string theirs =
          name.starts_with("perceptron.") ? name.substr(sizeof "perceptron") : name;
      ASSERT_TRUE(other.weights.contains(theirs)) << theirs;
      const at::Tensor& same = other.weights.at(theirs);
      EXPECT_LE((weight - same).norm().item<double>(), 1e-5 * weight.norm().item<double>()) << name;
    }
  }
}

}  // namespace
}  // namespace trireme
