// What two texts of many lines differ in: for identities (NUMERICS.md), of which one line matters.
#pragma once

#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {

/// The lines of `text` that `other` does not have, in order, with ", " between them; "nothing"
/// where it has them all.
std::string differing_lines(std::string_view text, std::string_view other);

}  // namespace v0
}  // namespace trireme
