// RemoteRows: the rows of a worker's embeddings, which are on the servers, and their gradients of the
// step under way, which go to the servers with those of the parameters (remote_optimizer.h). Not thread
// safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/ps/rows/row_gradients.h"
#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/worker/client.h"

namespace trireme::inline v0::ps {

class RemoteRows final : public RowStore {
 public:
  /// `client`: gives the servers their first weights if they have none. `started`: whether it has been
  /// called; before, no server is asked for rows. `saves`, `loads`: of RowStore.
  struct Options {
    std::function<ParameterClient&()> client;
    std::function<bool()> started;
    std::vector<std::string> state;
    bool saves = true, loads = true;
  };
  RemoteRows(std::vector<ServedTable> tables, Options options)
      : RowStore(std::move(tables)), options_(std::move(options)), gradients_(this->tables()) {}

  RowGradients& gradients() noexcept { return gradients_; }
  void push(std::uint32_t table, const at::Tensor& ids, const at::Tensor& gradients) override;
  /// Rows from a checkpoint that the servers must begin with, or none.
  std::shared_ptr<const std::vector<SavedTable>> first_rows() const { return loaded(); }
  /// The training has ended: pull() and push() throw ConfigError.
  void end() {
    options_.client = nullptr;
    options_.started = nullptr;
  }

 private:
  void fetch(std::uint32_t table, std::span<const std::int64_t> ids, float* rows) override;
  std::vector<SavedTable> read() override;
  std::vector<SavedTable> read_servers();
  bool saves() const override { return options_.saves; }
  bool loads() const override { return options_.loads; }
  std::vector<std::string> state_names() const override { return options_.state; }
  ParameterClient& client();

  Options options_;
  RowGradients gradients_;
};

}  // namespace trireme::inline v0::ps
