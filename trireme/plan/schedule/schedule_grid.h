// Draws cells in columns with one of them marked, for errors about a schedule. Pure.
#pragma once

#include <string>
#include <vector>

#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::plan {

/// `rows` are the ranks' cells; `labels` go before them.
std::string grid_text(const std::vector<std::string>& labels,
                      std::vector<std::vector<std::string>> rows, const Mark& mark);

}  // namespace trireme::inline v0::plan
