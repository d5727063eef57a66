// A recording as pictures: one SVG of all rounds, or one self-contained HTML page that plays them.
//
// A round is a grid: rows are ranks, columns are chunks. A cell's text lists the ranks whose
// contributions it holds, and the strip below shows them as colours. A dark border marks a cell
// that changed in this round, green one that has its final value. Beside the grid, each sender has
// a line with a dot at its row and an arrow head at each receiver. If many rounds in a row have the
// same traffic, the SVG shows the first two and the last; the page shows all. Pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "trireme/plan/tuning.h"
#include "trireme/show/collective/recording.h"

namespace trireme::inline v0::show {

std::string svg_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);
/// A page with buttons and keys (page.h); it loads nothing else.
std::string html_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);

}  // namespace trireme::inline v0::show
