// TensorRows: a Dataset over named tensors whose rows are samples. The tensors are safetensors
// bytes, so that the ranks of a host share one copy. Immutable, thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/format/safetensors.h"
#include "trireme/input/dataset.h"
#include "trireme/input/epoch_order.h"

namespace trireme::inline v0::input {

/// `fields` as safetensors bytes; errors call them `whose`. Throws ConfigError if there is no
/// field, a name occurs twice, a tensor has no dim or no row, or the numbers of rows differ.
std::string pack_rows(const Fields& fields, const std::string& whose);

class TensorRows final : public Dataset {
 public:
  struct Options {
    bool endless = false;  // `seed` decides the order of each epoch; false: sample i is row i
    std::uint64_t seed = 1;
    std::int64_t items_per_sample = 1;  // a mean loss divides by the number of items
  };
  /// `bytes` come from pack_rows(); `owner` keeps them alive.
  TensorRows(std::string_view bytes, std::shared_ptr<const void> owner, Options options);

  /// Number of rows in packed bytes.
  static std::int64_t count(std::string_view bytes);

  std::int64_t size() const override { return order_.size(); }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size()) * options_.items_per_sample;
  }
  Fields read(std::span<const std::int64_t> samples) const override;

 private:
  const std::shared_ptr<const void> owner_;
  const Options options_;
  const std::vector<format::TensorView> tensors_;
  const std::int64_t rows_;
  const SampleOrder order_;
};

}  // namespace trireme::inline v0::input
