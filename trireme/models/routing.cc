#include "trireme/models/routing.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"

namespace trireme::inline v0::models {
namespace {

// Appends the most probable experts that are not in `chosen` yet; ties go to the lower number.
void choose(const double* probability, std::int64_t experts, std::int64_t* chosen,
            std::int64_t top_k) {
  for (std::int64_t k = 0; k < top_k; ++k) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + k, e) != chosen + k) continue;
      if (best < 0 || probability[e] > probability[best]) best = e;
    }
    chosen[k] = best;
  }
}

}  // namespace

Routing route(const at::Tensor& probabilities, int top_k, std::int64_t capacity) {
  const at::Tensor wide = probabilities.to(at::kCPU, at::kDouble).contiguous();
  const std::int64_t batch = wide.size(0), length = wide.size(1), experts = wide.size(2);
  TRIREME_CHECK(top_k >= 1);
  TRIREME_CHECK(top_k <= experts);
  const auto options = at::TensorOptions().dtype(at::kLong);
  Routing routing{.chosen = at::empty({batch * length, top_k}, options),
                  .load = at::zeros({batch, experts}, options)};
  const auto* probability = wide.const_data_ptr<double>();
  auto* chosen = routing.chosen.mutable_data_ptr<std::int64_t>();
  for (std::int64_t token = 0; token < batch * length; ++token)
    choose(probability + token * experts, experts, chosen + token * top_k, top_k);

  std::vector<std::vector<std::int64_t>> of_expert(static_cast<std::size_t>(experts));
  auto* load = routing.load.mutable_data_ptr<std::int64_t>();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t k = 0; k < top_k; ++k) {
      for (std::int64_t token = b * length; token < (b + 1) * length; ++token) {
        const std::int64_t choice = token * top_k + k, expert = chosen[choice];
        if (load[b * experts + expert]++ < capacity) {
          of_expert[static_cast<std::size_t>(expert)].push_back(choice);
        } else {
          ++routing.dropped;
        }
      }
    }
  }
  routing.places = at::empty({batch * length * top_k - routing.dropped}, options);
  auto* place = routing.places.mutable_data_ptr<std::int64_t>();
  for (const auto& choices : of_expert) {
    routing.counts.push_back(static_cast<std::int64_t>(choices.size()));
    place = std::copy(choices.begin(), choices.end(), place);
  }
  for (at::Tensor* indices : {&routing.chosen, &routing.load, &routing.places})
    *indices = indices->to(probabilities.device());
  return routing;
}

std::int64_t capacity_of(std::int64_t length, int experts, int top_k, double factor) {
  // Reduced by the product's rounding error: 1.2 x 2 x 10 / 8 must give 3.
  const double exact = factor * top_k * static_cast<double>(length) / experts;
  return static_cast<std::int64_t>(
      std::min(static_cast<double>(length), std::ceil(exact * (1 - 1e-12))));
}

std::int64_t computed_rows(std::int64_t count) {
  constexpr std::int64_t kMultiple = 16;
  return std::max<std::int64_t>(1, (count + kMultiple - 1) / kMultiple) * kMultiple;
}

}  // namespace trireme::inline v0::models
