// A recording as pictures: one SVG of all rounds, or one self-contained HTML page that plays them.
//
// A round is a grid (rows are ranks, columns chunks; a cell's text says whose parts it holds, the
// strip below it shows them as colours; a dark border: changed in this round; green: as it must be
// in the end) and, beside it, one line per sender: a dot where it starts, an arrow head at each
// receiver. The legend in the picture says so. Of many rounds in a row that send alike the SVG has
// the first two and the last; the page has them all. Pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "trireme/plan/tuning.h"
#include "trireme/show/recording.h"

namespace trireme {
inline namespace v0 {
namespace show {

std::string svg_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);
/// Buttons play, pause, step; keys space, left, right. The page needs nothing but itself.
std::string html_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);

}  // namespace show
}  // namespace v0
}  // namespace trireme
