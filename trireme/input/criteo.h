// Criteo's click logs as CSV: "Id,Label,I1,...,I13,C1,...,C26", 13 integers and 26 categories. Any
// of them may be empty.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/input/dataset.h"

namespace trireme::inline v0::input {

inline constexpr std::int64_t kCriteoNumbers = 13, kCriteoCategories = 26;

/// Reads a file of n >= 2 samples. "numbers" [n, 13] float: log(1 + x) of each integer, 0 if it is
/// empty or negative. "categories" [n, 26] int64: the id c * rows + h for column c, where h in
/// 0 ... rows - 1 is the hash of the value, which may be empty. "targets" [n] int64: 0 or 1. Throws
/// ConfigError, with the line, for another kind of file, and unless 1 <= rows <= 2^40.
Fields read_criteo(const std::string& path, std::int64_t rows);

}  // namespace trireme::inline v0::input
