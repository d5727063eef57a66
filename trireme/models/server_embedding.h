// ServerEmbedding: an embedding whose rows are on parameter servers (docs/servers.md): a torch
// module, and with Blocks::add a block.
//
//     auto items = register_module("items", std::make_shared<trireme::ServerEmbedding>(
//         trireme::ServerEmbeddingOptions{.name = "items", .width = 16}));
//     at::Tensor x = items->forward(ids);                    // [b] -> [b, 16]
//
// Any id from 0 to 2^63 - 1 has a row, whose initial values depend only on (seed, name, id), and
// which takes memory from its first update on. forward() fetches the distinct rows of its ids; the
// step pushes their gradients, and nothing else is sent. Rows are fp32. No parameters.
//
// A Strategy or DataParallel that finds it in its model connects it; before that, forward() throws
// ConfigError. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"

namespace trireme::inline v0 {
namespace models {

/// A table of rows on servers.
struct ServedTable {
  std::string name;         // equal names are one table, whose other fields must be equal, too
  std::int64_t width = 16;  // elements of a row
  double bound = 0.01;      // rows begin uniform in [-bound, bound]
  std::uint64_t seed = 1;
  std::int64_t max_rows =
      0;  // beyond this many the least recently updated ones are dropped; 0: no limit
  friend bool operator==(const ServedTable&, const ServedTable&) = default;
};

/// The distinct rows of some ids.
struct PulledRows {
  at::Tensor ids;     // [u] int64, in the order in which they first occur
  at::Tensor rows;    // [u + 1, width]; the last one is 0
  at::Tensor places;  // shape of the ids that were asked for: which row each is; u for negative ids
};

/// The place of the rows. One thread at a time.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual PulledRows pull(std::uint32_t table, const at::Tensor& ids) = 0;
  /// The gradients [u, width] of rows of the micro-batch under way.
  virtual void push(std::uint32_t table, const at::Tensor& ids, const at::Tensor& gradients) = 0;
};

/// How forward() combines the rows along the last dim of its ids.
enum class Bag : std::uint8_t { Keep, Sum, Mean };

struct ServerEmbeddingOptions {
  std::string name;
  std::int64_t width = 16;
  double bound = 0.01;
  std::uint64_t seed = 1;
  std::int64_t max_rows = 0;
  Bag bag = Bag::Keep;
};

class ServerEmbedding : public torch::nn::Module {
 public:
  /// ConfigError if there is no name, or a number makes no sense.
  explicit ServerEmbedding(const ServerEmbeddingOptions& options);

  /// int64 ids [..., n] to [..., n, width], or with a bag to [..., width]: their sum or mean. A
  /// negative id stands for no row: zeros, which a mean does not count.
  at::Tensor forward(const at::Tensor& ids);

  const ServedTable& table() const noexcept { return table_; }
  /// From now on the rows are those of table `number` of `source`.
  void connect(std::shared_ptr<RowSource> source, std::uint32_t number);

 private:
  const ServedTable table_;
  const Bag bag_;
  std::shared_ptr<RowSource> source_;
  std::uint32_t number_ = 0;
};

/// All ServerEmbeddings in a module, itself included.
std::vector<ServerEmbedding*> embeddings_of(torch::nn::Module& module);
std::vector<ServerEmbedding*> embeddings_of(const std::shared_ptr<Block>& block);

}  // namespace models
using models::Bag;
using models::ServerEmbedding;
using models::ServerEmbeddingOptions;
}  // namespace trireme::inline v0
