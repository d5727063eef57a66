// Criteo's click logs as CSV: "Id,Label,I1,...,I13,C1,...,C26", 13 integers and 26 categories, of which
// any may be empty. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/input/dataset.h"

namespace trireme::inline v0::input {

inline constexpr std::int64_t kCriteoNumbers = 13, kCriteoCategories = 26;

/// Reads a file: "numbers" [n, 13] float, log(1 + x) of each integer and 0 of empty and negative ones;
/// "categories" [n, 26] int64, of column c the id c `rows` + h, where h is the value's hash in 0 ... rows - 1
/// (an empty one is a value, too); "targets" [n] int64, 0 or 1. ConfigError, with the line, for a file of
/// another kind, and for `rows` < 1.
Fields read_criteo(const std::string& path, std::int64_t rows);

}  // namespace trireme::inline v0::input
