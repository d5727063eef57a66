// The optimizer that a server runs, as the text in which a worker sends it.
#pragma once

#include <string>
#include <string_view>

#include "trireme/kernel/optimizers/optimizers.h"

namespace trireme::inline v0::ps {

/// A JSON object: the optimizer's name and its numbers, exactly.
std::string to_text(const OptimizerOptions& options);
/// ConfigError for a text of another kind, or of an optimizer that this version does not have.
OptimizerOptions optimizer_from_text(std::string_view text);
/// A sentence's end: "its WHAT is WORKER, the server's is SERVER".
std::string differ(const std::string& what, const std::string& worker, const std::string& server);
/// A sentence's end on the first difference of a worker's optimizer from a server's; empty: none.
std::string difference(const OptimizerOptions& server, const OptimizerOptions& worker);
/// ConfigError for an optimizer whose step needs sums over whole parameters (LAMB, Adafactor):
/// a server has parts of them.
void require_elementwise(std::string_view optimizer);

}  // namespace trireme::inline v0::ps
