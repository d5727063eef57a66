// A recording as text, as JSON, and as pictures: one SVG of all rounds, or one self-contained HTML
// page that plays them.
//
// A round is a grid: rows are ranks, columns are chunks. A cell's text lists the ranks whose
// contributions it holds. In a picture, the strip below shows them as colours; a dark border marks
// a cell that changed in this round, and green a final value. Beside the grid, each sender has a
// line with a dot at its row and an arrow head at each receiver. If many rounds in a row have the
// same traffic, the SVG shows the first two and the last; the page shows all. Pure functions; lines
// of text end with a newline.
#pragma once

#include <cstddef>
#include <string>

#include "trireme/plan/tuning.h"
#include "trireme/show/collective/recording.h"

namespace trireme::inline v0::show {

/// "all-reduce ring, 4 ranks on 2 hosts".
std::string name_of(const Recording& recording);
/// The name, and the algorithm's description of itself.
std::string heading(const Recording& recording);
/// The table after step `step`, and the messages of that step.
std::string table(const Recording& recording, int step);
/// Rounds, bytes, formula, and the time at `bytes` over `link`.
std::string footer(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);
/// Heading, tables and footer.
std::string text_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);
/// One object per line: {"event": "show", ...}, one {"event": "round", ...} per round (round 0 is
/// the state before the first), and {"event": "cost", ...} at the end.
std::string json_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);
std::string svg_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);
/// A page with buttons and keys (page.h); it loads nothing else.
std::string html_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);

/// "chunk 0 to ranks 1, 2; chunk 3 to rank 1": what `rank` sent in `step`.
std::string sends_text(const Step& step, int rank);
/// "rank 3", "rank 3, host 1" if there are several hosts.
std::string rank_label(const Recording& recording, int rank);
/// "round 3 of 6", "before".
std::string step_title(const Recording& recording, int step);
/// "each rank sent 384 B, 1,536 B in all" or "a rank sent 0 to 512 B, ...".
std::string sent_text(const Recording& recording);

}  // namespace trireme::inline v0::show
