#include "trireme/models/server_embedding.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/models/module_block.h"

namespace trireme::inline v0::models {
namespace {

ServedTable table_of(const ServerEmbeddingOptions& options) {
  if (options.name.empty() || options.name.find('/') != std::string::npos)
    refuse("ServerEmbedding", "an embedding cannot be called \"" + options.name + "\"",
           "Give it a name without a slash: checkpoints call its rows by it.");
  if (options.width < 1 || options.width > 65'536)
    refuse("ServerEmbedding", options.name + ": rows of " + counted(options.width, "element"),
           "Use a width of 1 to 65,536.");
  if (!(options.bound >= 0 && options.bound <= 1e6))
    refuse("ServerEmbedding",
           options.name + ": rows that begin within " + number_text(options.bound),
           "Use 0 or a small number, such as 0.01.");
  if (options.max_rows < 0)
    refuse("ServerEmbedding", options.name + ": max_rows = " + std::to_string(options.max_rows),
           "Use 0 (no bound) or the number of rows to keep.");
  return {options.name, options.width, options.bound, options.seed, options.max_rows};
}

at::Tensor bag_of(const at::Tensor& rows, const at::Tensor& ids, Bag bag) {
  if (bag == Bag::Keep) return rows;
  const at::Tensor sum = at::sum(rows, -2);
  if (bag == Bag::Sum) return sum;
  return sum / at::sum(at::ge(ids, 0), -1, /*keepdim=*/true).clamp_min(1);
}

}  // namespace

ServerEmbedding::ServerEmbedding(const ServerEmbeddingOptions& options)
    : table_(table_of(options)), bag_(options.bag) {}

void ServerEmbedding::connect(std::shared_ptr<RowSource> source, std::uint32_t number) {
  source_ = std::move(source);
  number_ = number;
}

at::Tensor ServerEmbedding::forward(const at::Tensor& given) {
  if (!source_)
    refuse("ServerEmbedding", "embedding \"" + table_.name + "\" is not connected to its rows",
           "Make the Strategy or DataParallel of the model first.");
  if (given.scalar_type() != at::kLong || (bag_ != Bag::Keep && given.dim() < 1))
    refuse("ServerEmbedding",
           "embedding \"" + table_.name + "\" needs int64 ids" +
               (bag_ == Bag::Keep ? "" : " of at least 1 dim") + ", but was given " +
               c10::toString(given.scalar_type()) + " of " + counted(given.dim(), "dim"),
           "Give it int64 ids; for a bag, [..., number of ids].");
  const at::Tensor ids = given.cpu();
  const PulledRows pulled = source_->pull(number_, ids);
  at::Tensor rows = pulled.rows;
  // The rows are a leaf of this micro-batch's graph. Its hook gets their gradient, in which
  // LibTorch has added the positions of a row in their order.
  if (c10::GradMode::is_enabled()) {
    rows.requires_grad_();
    rows.register_hook(
        [source = source_, number = number_, distinct = pulled.ids](const at::Tensor& gradient) {
          source->push(number, distinct, gradient.narrow(0, 0, distinct.numel()));
        });
  }
  return bag_of(at::embedding(rows, pulled.places), ids, bag_).to(given.device());
}

std::vector<ServerEmbedding*> embeddings_of(torch::nn::Module& module) {
  std::vector<ServerEmbedding*> found;
  module.apply([&](torch::nn::Module& one) {
    if (auto* embedding = dynamic_cast<ServerEmbedding*>(&one)) found.push_back(embedding);
  });
  return found;
}

std::vector<ServerEmbedding*> embeddings_of(const std::shared_ptr<Block>& block) {
  const std::shared_ptr<torch::nn::Module> module = module_of(block);
  return module ? embeddings_of(*module) : std::vector<ServerEmbedding*>();
}

}  // namespace trireme::inline v0::models
