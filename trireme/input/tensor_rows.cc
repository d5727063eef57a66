#include "trireme/input/tensor_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/refuse.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::input {
namespace {

[[noreturn]] void refuse_rows(const std::string& what) {
  refuse("data", what,
         "Give every field a name of its own and a tensor whose first dim is the sample, as many "
         "in each.");
}

void check_rows(const Fields& fields, const std::string& whose) {
  if (fields.empty()) refuse_rows(whose + " have no field");
  std::set<std::string> names;
  for (const auto& [name, tensor] : fields) {
    const std::string field = whose + ": the field \"" + name + "\"";
    if (!names.insert(name).second) refuse_rows(field + " occurs twice");
    if (!tensor.defined() || tensor.dim() == 0) refuse_rows(field + " is not a tensor with rows");
    if (tensor.size(0) == 0) refuse_rows(field + " has no rows");
    const std::int64_t first = fields.front().second.size(0);
    if (tensor.size(0) != first)
      refuse_rows(field + " has " + std::to_string(tensor.size(0)) + " rows, and \"" +
                  fields.front().first + "\" has " + std::to_string(first));
  }
}

std::vector<format::TensorView> parsed(std::string_view bytes) {
  return format::parse_safetensors(std::as_bytes(std::span(bytes)), "data").tensors;
}

}  // namespace

std::string pack_rows(const Fields& fields, const std::string& whose) {
  check_rows(fields, whose);
  std::vector<at::Tensor> alive;
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : fields) {
    const at::Tensor& whole = alive.emplace_back(tensor.detach().cpu().contiguous());
    views.push_back({name,
                     tensor::dtype_of(whole),
                     whole.sizes().vec(),
                     {static_cast<const std::byte*>(whole.data_ptr()), whole.nbytes()}});
  }
  std::string bytes;
  std::size_t size = 0;
  for (const format::TensorView& view : views) size += view.bytes.size();
  constexpr std::size_t kHeader = 4096;  // more than it takes for a few names
  bytes.reserve(size + kHeader);
  format::write_safetensors(std::move(views), {}, [&](std::span<const std::byte> piece) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return bytes;
}

std::int64_t TensorRows::count(std::string_view bytes) { return parsed(bytes).front().shape[0]; }

TensorRows::TensorRows(std::string_view bytes, std::shared_ptr<const void> owner, Options options)
    : owner_(std::move(owner)),
      options_(options),
      tensors_(parsed(bytes)),
      rows_(tensors_.front().shape[0]),
      order_(rows_, options.endless, options.seed) {}

Fields TensorRows::read(std::span<const std::int64_t> samples) const {
  Fields fields;
  for (const format::TensorView& whole : tensors_) {
    std::vector<std::int64_t> shape = whole.shape;
    shape[0] = static_cast<std::int64_t>(samples.size());
    const at::Tensor taken =
        at::empty(shape, at::TensorOptions(tensor::scalar_type_of(whole.dtype)));
    const std::size_t row = whole.bytes.size() / static_cast<std::size_t>(rows_);
    auto* out = static_cast<std::byte*>(taken.data_ptr());
    for (const std::int64_t sample : samples) {
      const auto from = static_cast<std::size_t>(order_.record(sample));
      std::ranges::copy(whole.bytes.subspan(from * row, row), out);
      out += row;
    }
    fields.emplace_back(whole.name, taken);
  }
  return fields;
}

}  // namespace trireme::inline v0::input
