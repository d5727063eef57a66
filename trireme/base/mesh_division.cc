#include "trireme/base/mesh_division.h"

#include <utility>
#include <vector>

#include "trireme/base/joined.h"

namespace trireme::inline v0 {
namespace {

// "parallel.pipeline x parallel.tensor = 2 x 2 = 4"
std::string product_of(const MeshShape& shape, std::int64_t product) {
  std::vector<std::string> names, numbers;
  for (const auto& [name, size] : {std::pair{"parallel.pipeline", shape.pipeline},
                                   {"parallel.context", shape.context},
                                   {"parallel.tensor", shape.tensor}}) {
    if (size == 1) continue;
    names.emplace_back(name);
    numbers.push_back(std::to_string(size));
  }
  return joined(names, {}, " x ") + " = " + joined(numbers, {}, " x ") +
         (names.size() > 1 ? " = " + std::to_string(product) : std::string());
}

}  // namespace

std::string division(std::int64_t number, std::int64_t divisor) {
  return std::to_string(number) + " = " + std::to_string(number / divisor) + " x " +
         std::to_string(divisor) + " + " + std::to_string(number % divisor);
}

std::optional<MeshRefusal> refuse_mesh(const MeshShape& shape, int ranks) {
  const std::int64_t product = std::int64_t{shape.pipeline} * shape.context * shape.tensor;
  const auto advice = [](std::int64_t divisor) {
    return "Use a multiple of " + std::to_string(divisor) + " ranks.";
  };
  if (ranks % product != 0)
    return MeshRefusal{
        product_of(shape, product) + " does not divide the ranks: " + division(ranks, product),
        advice(product)};
  const std::int64_t left = ranks / product;
  if (left % shape.expert == 0) return std::nullopt;
  std::string what =
      "parallel.expert = " + std::to_string(shape.expert) + " does not divide data x shard: ";
  if (product > 1)
    what += std::to_string(ranks) + " ranks / " + std::to_string(product) + " = " +
            std::to_string(left) + ", and ";
  return MeshRefusal{what + division(left, shape.expert), advice(product * shape.expert)};
}

}  // namespace trireme::inline v0
