// A recording as text: one table per round (rows are ranks, columns are chunks, a cell lists the
// ranks whose contributions it holds), and the cost. Pure functions; lines end with a newline.
#pragma once

#include <string>

#include "trireme/show/collective/cost.h"
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

/// "chunk 0 to ranks 1, 2; chunk 3 to rank 1": what `rank` sent in `step`.
std::string sends_text(const Step& step, int rank);
/// "round 3 of 6", "before".
std::string step_title(const Recording& recording, int step);
/// "each rank sends 384 B, 1,536 B in all" or "a rank sends 0 to 512 B, ...".
std::string sent_text(const Recording& recording);

}  // namespace trireme::inline v0::show
