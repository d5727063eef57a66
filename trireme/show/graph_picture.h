// A partitioned graph as SVG: a band a stage, in it nodes from left to right in the order of their
// dependence, each with its name and time; a line from a node to those that read it, values that
// jump over columns in lanes above; below the bands what crosses each cut. Nodes that should be
// split have a red border. Pure.
#pragma once

#include <string>

#include "trireme/plan/graph_partition.h"

namespace trireme {
inline namespace v0 {
namespace show {

std::string svg_of(const plan::Graph& graph, const plan::GraphPartition& partition);
/// "stage", "cost" JSON lines.
std::string json_of(const plan::Graph& graph, const plan::GraphPartition& partition);

}  // namespace show
}  // namespace v0
}  // namespace trireme
