// Same training on every mesh: pipeline x data x shard x context x tensor over real processes, with
// experts among the data ranks. Meshes with equal numbers of ranks that share layers end with the
// same bits; those without any, with one process's bits. All losses are close.
#include <cmath>
#include <cstdlib>

#include "tests/numerics/same_training.h"
#include "tests/numerics/training.h"
#include "trireme/kernel/philox.h"

namespace trireme {
namespace {

using numerics::Case;

// 16 micro-batches per step.
const Case kCase{.name = "blocks-gpt", .batch = 32, .micro = 2, .steps = 2};

struct Mesh {
  int pipeline = 1, data = 1, shard = 1, context = 1, tensor = 1;
  std::string name() const {
    return std::to_string(pipeline) + "x" + std::to_string(data) + "x" + std::to_string(shard) +
           "x" + std::to_string(context) + "x" + std::to_string(tensor);
  }
};

// Eight blocks, heads and positions; twice the number of context-parallel ranks divides eight.
std::vector<Mesh> factorisations(int ranks) {
  std::vector<Mesh> all;
  for (int pipeline = 1; pipeline <= 8; ++pipeline)
    for (const int context : {1, 2, 4})
      for (int tensor = 1; tensor <= 8; ++tensor)
        for (int shard = 1; pipeline * context * tensor * shard <= ranks; ++shard)
          if (const int model = pipeline * context * tensor * shard; ranks % model == 0)
            all.push_back({pipeline, ranks / model, shard, context, tensor});
  return all;
}

// Bits depend on which ranks share a layer, and how. These meshes cut the sequence too.
bool cuts_sequence(const Mesh& mesh) {
  return mesh.tensor > 1 && mesh.context == 1 && mesh.data == 2;
}
std::string layers_of(const Mesh& mesh) {
  return "context-" + std::to_string(mesh.context) + "-tensor-" + std::to_string(mesh.tensor) +
         (cuts_sequence(mesh) ? "-sequence" : "");
}

StrategyOptions options_of(const Mesh& mesh) {
  StrategyOptions options{.pipeline = mesh.pipeline,
                          .context = mesh.context,
                          .tensor = mesh.tensor,
                          .sequence = cuts_sequence(mesh),
                          .clip = 0.05,
                          .bucket_bytes = 1024};
  if (mesh.shard == 1) return options;
  options.sync = mesh.data > 1 ? "hybrid" : "zero3";
  if (options.sync == "hybrid") options.shard = mesh.shard;
  return options;
}

// Arguments: the number of ranks, and how many of their meshes to run (0: all). RESULT's algorithm
// is the mesh.
TRIREME_PROCESS(train_meshes) {
  Job job(argc, argv);
  std::vector<Mesh> meshes = factorisations(job.size());
  const auto most = static_cast<std::size_t>(argc > 1 ? std::stoi(argv[1]) : 0);
  for (std::uint64_t at = 0; most > 0 && meshes.size() > most; ++at)
    meshes.erase(meshes.begin() +
                 static_cast<std::ptrdiff_t>(kernel::philox(1, 2, at)[0] % meshes.size()));
  for (const Mesh& mesh : meshes) {
    const models::Blocks model = models::make_gpt({.layers = 6,
                                                   .heads = 8,
                                                   .width = 16,
                                                   .block = numerics::kLength,
                                                   .vocab = numerics::kVocab,
                                                   .dropout = 0.1});
    Strategy strategy(job, model, options_of(mesh), AdamW{.learning_rate = 1e-2});
    std::vector<double> losses;
    for (std::int64_t step = 0; step < kCase.steps; ++step)
      losses.push_back(strategy.step(numerics::batch_of(kCase, step, job), token_loss()).loss);
    const std::string hash = strategy.weights_hash();
    std::printf("RESULT %s %s %s %.9f\n", layers_of(mesh).c_str(), mesh.name().c_str(),
                hash.c_str(), losses.back());
  }
  return 0;
}

// Eight ranks, four experts, and eight micro-batches of four sequences.
std::vector<StrategyOptions> expert_meshes(int ranks) {
  const auto on = [](int expert, const char* sync, int pipeline = 1, int tensor = 1) {
    return StrategyOptions{.sync = sync,
                           .pipeline = pipeline,
                           .expert = expert,
                           .tensor = tensor,
                           .clip = 0.05,
                           .bucket_bytes = 1024};
  };
  if (ranks == 1) return {on(1, "plain")};
  std::vector<StrategyOptions> all = {on(1, "zero3"), on(1, "zero1", 2)};
  for (const int expert : {2, 4}) {
    for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) all.push_back(on(expert, sync));
    all.push_back(on(expert, "hybrid"));
    all.back().shard = 2;
    all.push_back(on(expert, "plain", 2));
    all.push_back(on(expert, "zero1", 2));
    all.back().schedule = "gpipe";
    if (expert == 2) all.push_back(on(expert, "plain", 4));
    all.push_back(on(expert, "plain", 1, 2));
    all.push_back(on(expert, "zero2", 8 / expert / 2, 2));
  }
  return all;
}

std::string text_of(const StrategyOptions& mesh) {
  return std::to_string(mesh.pipeline) + "-" + std::to_string(mesh.tensor) + "-" + mesh.sync;
}

TRIREME_PROCESS(hybrid_experts) {
  Job job(argc, argv);
  const Case mixtures{.name = "blocks-gpt", .batch = 32, .micro = 4, .steps = 2};
  for (const StrategyOptions& mesh : expert_meshes(job.size())) {
    const models::Blocks model = models::make_gpt({.layers = 6,
                                                   .heads = 2,
                                                   .width = 16,
                                                   .block = numerics::kLength,
                                                   .vocab = numerics::kVocab,
                                                   .experts = 4,
                                                   .capacity_factor = 0.9,
                                                   .dropout = 0.1});
    Strategy strategy(job, model, mesh, AdamW{.learning_rate = 1e-2});
    double loss = 0;
    for (std::int64_t step = 0; step < mixtures.steps; ++step)
      loss = strategy.step(numerics::batch_of(mixtures, step, job), token_loss()).loss;
    const std::string hash = strategy.weights_hash();
    std::printf("RESULT expert-%d-tensor-%d %s %s %.9f\n", mesh.expert, mesh.tensor,
                text_of(mesh).c_str(), hash.c_str(), loss);
  }
  return 0;
}

std::map<std::string, std::string> train_on(int ranks, int meshes) {
  const numerics::Results results = numerics::train_layout({.ranks = ranks,
                                                            .arguments = {std::to_string(meshes)},
                                                            .time_limit = std::chrono::seconds(400),
                                                            .body = "train_meshes"});
  const std::size_t all = factorisations(ranks).size();
  EXPECT_EQ(results.of_case.size(), meshes == 0 ? all : static_cast<std::size_t>(meshes));
  return by_case(results);
}

const std::map<std::string, std::string>& on_eight() {
  static const auto all = train_on(8, 0);
  return all;
}

double loss_of(const std::string& value) { return std::stod(value.substr(value.find(' ') + 1)); }

TEST(HybridTraining, EveryMeshOfEightEndsWithOneTraining) {
  const std::string alone = "context-1-tensor-1";
  const auto one = train_on(1, 0);
  const auto& all = on_eight();
  EXPECT_EQ(all.at(alone), one.at(alone));
  EXPECT_EQ(all.size(), 11u);  // 1, 2, 4, 8; 2 x 1, 2, 4; 4 x 1, 2; sequences cut among 2, 4
  for (const auto& [which, value] : all)
    EXPECT_NEAR(loss_of(value), loss_of(one.at(alone)), 1e-4) << which;
}

TEST(HybridTraining, ExpertsOnEightRanksEndWithOneTraining) {
  const auto train = [](int ranks) {
    const numerics::Results results = numerics::train_layout(
        {.ranks = ranks, .time_limit = std::chrono::seconds(300), .body = "hybrid_experts"});
    EXPECT_EQ(results.of_case.size(), expert_meshes(ranks).size());
    return by_case(results);
  };
  const std::string alone = "expert-1-tensor-1";
  const auto one = train(1), all = train(8);
  EXPECT_EQ(all.at(alone), one.at(alone));
  EXPECT_EQ(all.size(),
            5u);  // 2 and 4 expert-parallel ranks, each with and without tensor parallel
  for (const auto& [which, value] : all)
    EXPECT_NEAR(loss_of(value), loss_of(one.at(alone)), 1e-4) << which;
}

// Eight of them; `make soak` takes 20.
TEST(HybridTraining, MeshesOfSixteenAreTheTrainingsOfEight) {
  const bool every = std::getenv("TRIREME_EVERY_TRAINING") != nullptr;
  std::size_t compared = 0;
  for (const auto& [which, value] : train_on(16, every ? 20 : 8)) {
    const auto found = on_eight().find(which);
    if (found == on_eight().end()) continue;  // this many ranks cannot share layers
    EXPECT_EQ(value, found->second) << which;
    ++compared;
  }
  EXPECT_GE(compared, 4u);
}

}  // namespace
}  // namespace trireme
