// Checks for command options. The error names the refused value and what it must be.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::inline v0::command {

/// A number from `least` on; no NaN.
CLI::Validator at_least(double least);
/// A number from `least` to `most`; no NaN.
CLI::Validator between(double least, double most);
/// One of these words; the error names the nearest.
CLI::Validator one_of(std::vector<std::string> words);

}  // namespace trireme::inline v0::command
