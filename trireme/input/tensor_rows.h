// TensorRows: named tensors whose rows are samples, as a Dataset over bytes (safetensors), so that
// the ranks of a host share one copy of them. Immutable, thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/format/safetensors.h"
#include "trireme/input/dataset.h"
#include "trireme/input/endless_order.h"

namespace trireme {
inline namespace v0 {
namespace input {

/// The bytes of `fields`. `whose` names them in errors. Throws ConfigError where there is no field,
/// a tensor has no dim, they have not all as many rows (at least one), or a type cannot be kept.
std::string pack_rows(const Fields& fields, const std::string& whose);

class TensorRows final : public Dataset {
 public:
  struct Options {
    bool endless = false;  // each epoch in an order drawn by `seed`; else row i is sample i
    std::uint64_t seed = 1;
    std::int64_t items_per_sample = 1;  // that a mean loss is taken over
  };
  /// `bytes` are those of pack_rows(); `owner` keeps them where they are.
  TensorRows(std::string_view bytes, std::shared_ptr<const void> owner, Options options);

  /// Rows of packed bytes.
  static std::int64_t count(std::string_view bytes);

  std::int64_t size() const override { return options_.endless ? 0 : rows_; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size()) * options_.items_per_sample;
  }
  Fields read(std::span<const std::int64_t> samples) const override;

 private:
  const std::shared_ptr<const void> owner_;
  const Options options_;
  const std::vector<format::TensorView> tensors_;
  const std::int64_t rows_;
  const EndlessOrder order_;
};

}  // namespace input
}  // namespace v0
}  // namespace trireme
