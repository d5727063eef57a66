// Same training, every mesh: pipeline x data x shard x tensor over real processes. For one number
// of tensor-parallel ranks all meshes end with the same bits; without any, with those of one
// process; and the losses of all are near.
#include <cmath>

#include "tests/numerics/same_training.h"
#include "tests/numerics/training.h"
#include "trireme/kernel/philox.h"

namespace trireme {
namespace {

using numerics::Case;

// 16 micro-batches a step.
const Case kCase{.name = "blocks-gpt", .batch = 32, .micro = 2, .steps = 3};

struct Mesh {
  int pipeline = 1, data = 1, shard = 1, tensor = 1;
  std::string name() const {
    return std::to_string(pipeline) + "x" + std::to_string(data) + "x" + std::to_string(shard) +
           "x" + std::to_string(tensor);
  }
};

// Eight blocks, eight heads: no axis is longer.
std::vector<Mesh> factorisations(int ranks) {
  std::vector<Mesh> all;
  for (int pipeline = 1; pipeline <= 8; ++pipeline)
    for (int tensor = 1; tensor <= 8; ++tensor)
      for (int shard = 1; pipeline * tensor * shard <= ranks; ++shard)
        if (ranks % (pipeline * tensor * shard) == 0)
          all.push_back({pipeline, ranks / (pipeline * tensor * shard), shard, tensor});
  return all;
}

StrategyOptions options_of(const Mesh& mesh) {
  StrategyOptions options{.pipeline = mesh.pipeline,
                          .tensor = mesh.tensor,
                          .sequence = mesh.tensor > 1 && mesh.data == 2,
                          .clip = 0.05,
                          .bucket_bytes = 1024};
  if (mesh.shard == 1) return options;
  // In a pipeline what is sharded is the optimizer's state, over all data-parallel ranks.
  options.sync = mesh.pipeline > 1 ? "zero1" : mesh.data > 1 ? "hybrid" : "zero3";
  if (options.sync == "hybrid") options.shard = mesh.shard;
  return options;
}

// Arguments: the number of ranks, and how many meshes of them (0: all). RESULT's algorithm is the
// mesh.
TRIREME_PROCESS(train) {
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
    std::printf("RESULT tensor-%d%s %s %s %.9f\n", mesh.tensor,
                options_of(mesh).sequence ? "-sequence" : "", mesh.name().c_str(), hash.c_str(),
                losses.back());
  }
  return 0;
}

std::map<std::string, std::string> train_on(int ranks, int meshes) {
  const numerics::Results results =
      numerics::train_layout({.ranks = ranks,
                              .arguments = {std::to_string(meshes)},
                              .time_limit = std::chrono::seconds(400)});
  const std::size_t all = factorisations(ranks).size();
  EXPECT_EQ(results.of_case.size(), meshes == 0 ? all : static_cast<std::size_t>(meshes));
  return by_case(results);
}

TEST(HybridTraining, EveryMeshOfEightEndsWithOneTraining) {
  const auto one = train_on(1, 0), all = train_on(8, 0);
  EXPECT_EQ(all.at("tensor-1"), one.at("tensor-1"));
  EXPECT_EQ(all.size(), 6u);  // 1, 2, 4 and 8 tensor-parallel ranks, two of them with sequences too
  const auto loss_of = [](const std::string& value) {
    return std::stod(value.substr(value.find(' ') + 1));
  };
  for (const auto& [which, value] : all)
    EXPECT_NEAR(loss_of(value), loss_of(one.at("tensor-1")), 1e-4) << which;
}

TEST(HybridTraining, TwentyMeshesOfSixteenAreTheTrainingsOfEight) {
  const auto eight = train_on(8, 0);
  std::size_t compared = 0;
  for (const auto& [which, value] : train_on(16, 20)) {
    if (which == "tensor-8-sequence") continue;  // eight ranks have no two data-parallel ones of it
    EXPECT_EQ(value, eight.at(which)) << which;
    ++compared;
  }
  EXPECT_GE(compared, 4u);
}

}  // namespace
}  // namespace trireme
