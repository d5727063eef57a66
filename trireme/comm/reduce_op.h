// ReduceOp: how a collective combines the ranks' elements.
#pragma once

#include <cstdint>

namespace trireme::inline v0 {

enum class ReduceOp : std::uint8_t { Sum, Mean, Min, Max, Product };
inline constexpr ReduceOp Sum = ReduceOp::Sum;
inline constexpr ReduceOp Mean = ReduceOp::Mean;
inline constexpr ReduceOp Min = ReduceOp::Min;
inline constexpr ReduceOp Max = ReduceOp::Max;
inline constexpr ReduceOp Product = ReduceOp::Product;

}  // namespace trireme::inline v0
