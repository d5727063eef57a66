// The difference between two texts of many lines. Used for identities (docs/numerics.md), where
// only the differing lines matter.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// The lines of `text` that `other` does not contain, joined by ", "; "nothing" if none.
std::string differing_lines(std::string_view text, std::string_view other);

}  // namespace trireme::inline v0
