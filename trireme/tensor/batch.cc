#include "trireme/tensor/batch.h"

#include "trireme/base/error.h"

namespace trireme::inline v0 {

const at::Tensor& MicroBatch::field(std::string_view name) const {
  std::string known;
  for (const auto& [field, tensor] : fields) {
    if (field == name) return tensor;
    known += (known.empty() ? "" : ", ") + field;
  }
  throw ConfigError(
      "the batch has no field '" + std::string(name) + "'",
      {.operation = "batch",
       .advice = known.empty() ? "It has no fields at all." : "It has: " + known + "."});
}

}  // namespace trireme::inline v0
