// RemoteRows: the rows of a worker's embeddings, which are on the servers, and their gradients in
// the present step, which go there with those of the parameters (remote_optimizer.h). Not thread
// safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/ps/rows/row_gradients.h"
#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/worker/client.h"

namespace trireme::inline v0::ps {

class RemoteRows final : public RowStore {
 public:
  /// `client`: also gives the servers their first weights if they have none. `started`: whether
  /// they have weights; before, read() asks no server.
  RemoteRows(std::vector<ServedTable> tables, Options options,
             std::function<ParameterClient&()> client, std::function<bool()> started)
      : RowStore(std::move(tables), std::move(options)),
        client_(std::move(client)),
        started_(std::move(started)),
        gradients_(this->tables()) {}

  RowGradients& gradients() noexcept { return gradients_; }
  void push(std::uint32_t table, const at::Tensor& ids, const at::Tensor& gradients) override {
    gradients_.take(table, ids, gradients);
  }
  /// Rows from a checkpoint that the servers must begin with, or none.
  std::shared_ptr<const std::vector<SavedTable>> first_rows() const { return loaded(); }
  /// The training has ended: pull() and push() throw ConfigError.
  void end() {
    client_ = nullptr;
    started_ = nullptr;
  }

 private:
  void fetch(std::uint32_t table, std::span<const std::int64_t> ids, float* rows) override;
  std::vector<SavedTable> read() override;
  ParameterClient& client();

  std::function<ParameterClient&()> client_;
  std::function<bool()> started_;
  RowGradients gradients_;
};

}  // namespace trireme::inline v0::ps
