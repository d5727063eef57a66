// A dataflow graph of measured blocks as a text file:
//
//     # node NAME TIME [WEIGHTS [ACTIVATIONS]]      forward and backward of a micro-batch
//     node stem 2.1ms 40kB 12MB
//     # value NAME SIZE READER...                   what NAME makes, and who reads it
//     value stem 3MB conv1 add
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "trireme/plan/partition/graph_partition.h"

namespace trireme::inline v0::plan {

/// ConfigError with `where` and the line for an unknown word or name, a duplicate, or a bad number.
Graph parse_graph(std::string_view text, const std::string& where = "graph");
/// Writes the form that parse_graph reads; omits values without readers. ConfigError if a node's
/// name is not one word.
std::string text_of(const Graph& graph);

}  // namespace trireme::inline v0::plan
