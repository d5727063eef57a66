#include "trireme/kernel/mixing.h"

#include <algorithm>
#include <array>

#include "trireme/base/check.h"

namespace trireme::inline v0::kernel {
namespace {

template <class Update>
void in_type(DType type, Update update) {
  TRIREME_CHECK((type == DType::F32 || type == DType::F64) == true);
  if (type == DType::F64) {
    update(double{});
  } else {
    update(float{});
  }
}

// Small enough to stay in the first-level cache while the terms are added one after another.
constexpr std::size_t kBlock = 1024;

template <class T>
void add_weighted(std::span<const double> weights, std::span<const void* const> in, T* out,
                  std::size_t count) {
  std::array<T, kBlock> sum;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t length = std::min(kBlock, count - at);
    for (std::size_t k = 0; k < in.size(); ++k) {
      const T* values = static_cast<const T*>(in[k]) + at;
      const T weight = static_cast<T>(weights[k]);
      if (k == 0) {
        for (std::size_t i = 0; i < length; ++i) sum[i] = weight * values[i];
      } else {
        for (std::size_t i = 0; i < length; ++i) sum[i] += weight * values[i];
      }
    }
    std::copy_n(sum.data(), length, out + at);
  }
}

}  // namespace

void weighted_sum(std::span<const double> weights, std::span<const void* const> in, void* out,
                  DType type, std::size_t count) {
  TRIREME_CHECK(weights.size() == in.size());
  TRIREME_CHECK(in.size() > 0u);
  in_type(type, [&]<class T>(T) { add_weighted(weights, in, static_cast<T*>(out), count); });
}

}  // namespace trireme::inline v0::kernel
