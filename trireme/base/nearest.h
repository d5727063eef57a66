// Finds the word that a user probably meant, for errors that end in "Did you mean ...?".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0 {

/// The fewest insertions, deletions and substitutions that turn `a` into `b` (Levenshtein 1966).
std::size_t edit_distance(std::string_view a, std::string_view b);
/// The candidate with the fewest edits (the first, if several); empty if it differs from `word` in
/// more than half of its letters.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace trireme::inline v0
