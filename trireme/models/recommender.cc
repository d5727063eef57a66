#include "trireme/models/recommender.h"

#include <ATen/Functions.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/models/layer_factory.h"
#include "trireme/models/module_block.h"
#include "trireme/models/server_embedding.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::models {
namespace {

// A linear layer, optionally followed by ReLU.
class ReluLayer final : public Block {
 public:
  ReluLayer(const LayerContext& context, const LinearSpec& spec, bool relu)
      : linear_(current_layers()->linear(context, spec)), type_(context.type), relu_(relu) {}
  Value forward(std::span<const Value> inputs) override {
    const at::Tensor y = linear_->forward(inputs[0][0].to(type_));
    return {relu_ ? at::relu(y) : y};
  }
  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    linear_->append_parameters(all);
    return all;
  }
  std::vector<NamedTensor> buffers() override { return {}; }
  void train(bool) override {}

 private:
  const std::unique_ptr<Linear> linear_;
  const at::ScalarType type_;
  const bool relu_;
};

class RecommenderBuilder {
 public:
  explicit RecommenderBuilder(const RecommenderConfig& config)
      : config_(config), type_(tensor::compute_type(config.precision)) {
    std::vector<std::int64_t> sizes = config.bottom;
    sizes.insert(sizes.end(), config.top.begin(), config.top.end());
    sizes.insert(sizes.end(), {config.numbers, config.categories, config.width});
    for (const std::int64_t size : sizes)
      if (size < 1)
        throw ConfigError(
            "a model for clicks needs widths and numbers of columns of at least 1, not " +
                std::to_string(size),
            {.operation = "config", .advice = "Use 1 or more."});
  }

  // Layers NAME.0, NAME.1, ... of these widths; returns the last one's name.
  std::string layers(const std::string& name, std::string input,
                     const std::vector<std::int64_t>& widths, bool last_relu) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const LayerContext context{
          .block = name + "." + std::to_string(i), .seed = config_.seed, .type = type_};
      const LinearSpec spec{
          .name = "linear",
          .in = widths[i],
          .out = widths[i + 1],
          .bias = true,
          .stddev = std::sqrt(2.0 / static_cast<double>(widths[i] + widths[i + 1]))};
      const bool relu = last_relu || i + 2 < widths.size();
      blocks.add(context.block, {input},
                 [=] { return std::make_shared<ReluLayer>(context, spec, relu); });
      input = context.block;
    }
    return input;
  }

  void embedding(const std::string& name, std::int64_t width, Bag bag) {
    const ServerEmbeddingOptions options{.name = name,
                                         .width = width,
                                         .bound = bag == Bag::Keep ? config_.bound : 0,
                                         .seed = config_.seed,
                                         .max_rows = config_.max_rows,
                                         .bag = bag};
    blocks.add(name, {"categories"},
               [options] { return std::make_shared<ServerEmbedding>(options); });
  }

  Blocks blocks;

 private:
  const RecommenderConfig config_;
  const at::ScalarType type_;
};

// All pairs of the rows [b, n, width], each once: [b, n (n - 1) / 2].
at::Tensor pair_products(const at::Tensor& rows) {
  const std::int64_t n = rows.size(1);
  const at::Tensor products = at::bmm(rows, rows.transpose(1, 2));
  const at::Tensor pairs = at::tril_indices(n, n, /*offset=*/-1, rows.options().dtype(at::kLong));
  return products.flatten(1).index_select(1, pairs[0] * n + pairs[1]);
}

std::vector<std::int64_t> widths_of(std::int64_t first, const std::vector<std::int64_t>& hidden,
                                    std::int64_t last) {
  std::vector<std::int64_t> widths{first};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(last);
  return widths;
}

}  // namespace

Blocks make_dlrm(const RecommenderConfig& config) {
  RecommenderBuilder model(config);
  const std::string bottom = model.layers(
      "bottom", "numbers", widths_of(config.numbers, config.bottom, config.width), true);
  model.embedding("embeddings", config.width, Bag::Keep);
  model.blocks.add("interaction", {bottom, "embeddings"}, [] {
    return [](const at::Tensor& numbers, const at::Tensor& rows) {
      const at::Tensor row = numbers.to(rows.scalar_type());
      const at::Tensor all = at::cat({row.unsqueeze(1), rows}, 1);
      return at::cat({row, pair_products(all)}, 1);
    };
  });
  const std::int64_t n = config.categories + 1;
  const std::string top = model.layers(
      "top", "interaction", widths_of(config.width + n * (n - 1) / 2, config.top, 1), false);
  model.blocks.add("logit", {top}, [] { return [](const at::Tensor& y) { return y.squeeze(1); }; });
  return model.blocks;
}

Blocks make_wide_and_deep(const RecommenderConfig& config) {
  RecommenderBuilder model(config);
  model.embedding("embeddings", config.width, Bag::Keep);
  model.blocks.add("columns", {"numbers", "embeddings"}, [] {
    return [](const at::Tensor& numbers, const at::Tensor& rows) {
      return at::cat({numbers.to(rows.scalar_type()), rows.flatten(1)}, 1);
    };
  });
  const std::int64_t columns = config.numbers + config.categories * config.width;
  const std::string deep =
      model.layers("deep", "columns", widths_of(columns, config.top, 1), false);
  model.embedding("wide", 1, Bag::Sum);
  const std::string linear = model.layers("wide_numbers", "numbers", {config.numbers, 1}, false);
  model.blocks.add("logit", {deep, "wide", linear}, [] {
    return [](const at::Tensor& deep_part, const at::Tensor& wide, const at::Tensor& numbers) {
      return (deep_part + wide + numbers).squeeze(1);
    };
  });
  return model.blocks;
}

}  // namespace trireme::inline v0::models
