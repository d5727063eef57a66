// A partitioned graph as SVG. Each stage is a band; in it, nodes stand from left to right in the
// order of their dependences, with name and time. A line leads from a node to its readers; values
// that skip columns run in lanes above. The bytes that cross each cut stand below the bands. Nodes
// that should be split have a red border. Pure functions.
#pragma once

#include <string>

#include "trireme/plan/partition/graph_partition.h"

namespace trireme::inline v0::show {

std::string svg_of(const plan::Graph& graph, const plan::GraphPartition& partition);
/// JSON lines with the events "stage" and "cost".
std::string json_of(const plan::Graph& graph, const plan::GraphPartition& partition);

}  // namespace trireme::inline v0::show
