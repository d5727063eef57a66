// Models and data of clicks: dlrm, wide_and_deep, criteo, and the loss of a yes or no.
#include <ATen/Functions.h>

#include "trireme/input/criteo.h"
#include "trireme/models/recommender.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {
namespace {

std::vector<config::Key> click_keys() {
  return {
      {"model.width", std::int64_t{16}, "Elements of a category's row.", 1, 65'536},
      {"model.hidden", std::int64_t{64},
       "Width of the MLPs' hidden layers: one below the interaction; this and half of it above.", 2,
       65'536},
      {"model.bound", 0.05, "Rows begin uniform in [-bound, bound].", 0, 1e6},
      {"model.max_rows", std::int64_t{0},
       "Rows that the servers keep; beyond, the least recently updated are dropped; 0: all.", 0,
       1e15}};
}

models::RecommenderConfig recommender_of(const config::Config& config) {
  const std::int64_t hidden = config.integer("model.hidden");
  return {.numbers = input::kCriteoNumbers,
          .categories = input::kCriteoCategories,
          .width = config.integer("model.width"),
          .bottom = {hidden},
          .top = {hidden, hidden / 2},
          .bound = config.number("model.bound"),
          .max_rows = config.integer("model.max_rows"),
          .precision = config.text("train.precision"),
          .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
}

// A family of models of clicks. `kind`: for its description.
ModelFamily click_family(const char* name, const char* kind,
                         models::Blocks (*make)(const models::RecommenderConfig&)) {
  return {.name = name,
          .keys = click_keys(),
          .data = "criteo",
          .loss = "binary",
          .make = [kind, make](const config::Config& config) {
            const models::RecommenderConfig model = recommender_of(config);
            return TrainingModel{.description = kind + (" of " + std::to_string(model.numbers)) +
                                                " numbers and " + std::to_string(model.categories) +
                                                " categories, whose rows of " +
                                                std::to_string(model.width) + " are on servers",
                                 .blocks = make(model)};
          }};
}

// The last tenth of the file is for validation.
TensorSets divided_clicks(const input::Fields& all) {
  TensorSets sets;
  for (const auto& [name, tensor] : all) {
    const std::int64_t held_out = (tensor.size(0) + 9) / 10, train = tensor.size(0) - held_out;
    sets.train.emplace_back(name, tensor.narrow(0, 0, train).contiguous());
    sets.validation.emplace_back(name, tensor.narrow(0, train, held_out).contiguous());
  }
  return sets;
}

}  // namespace

ModelFamily dlrm_family() { return click_family("dlrm", "dlrm", models::make_dlrm); }
ModelFamily wide_and_deep_family() {
  return click_family("wide_and_deep", "wide & deep", models::make_wide_and_deep);
}

DataFamily criteo_data() {
  return {.name = "criteo",
          .keys = {{.name = "data.rows",
                    .fallback = std::int64_t{100'000},
                    .meaning = "Rows to which the values of each category are hashed.",
                    .minimum = 1,
                    .maximum = 1e12,
                    .identity = true}},
          .make = [](const config::Config& config) {
            const std::int64_t rows = config.integer("data.rows");
            DataWords words = words_of_samples();
            words.unit = "nats a sample";
            return tensor_source(
                "criteo",
                [rows](const std::string& path) {
                  return divided_clicks(input::read_criteo(path, rows));
                },
                words, static_cast<std::uint64_t>(config.integer("train.seed")));
          }};
}

Loss binary_loss() {
  return [](const models::Value& output, const MicroBatch& micro) {
    const bool wide = output.at(0).scalar_type() == at::kDouble;
    const at::Tensor logits = output.at(0).to(wide ? at::kDouble : at::kFloat).flatten();
    // -log p of the answer is log(1 + e^x) - x y.
    return at::sum(at::softplus(logits) - logits * micro.field("targets").flatten());
  };
}

Loss binary_matches() {
  return [](const models::Value& output, const MicroBatch& micro) {
    return at::sum(
        at::eq(at::gt(output.at(0).flatten(), 0), at::gt(micro.field("targets").flatten(), 0)));
  };
}

}  // namespace trireme::inline v0::train
