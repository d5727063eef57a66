// A configuration's model as a graph of measured blocks, which `trireme show partition` cuts.
#pragma once

#include "trireme/input/shared_corpus.h"
#include "trireme/plan/graph_partition.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace cli {

/// Builds block after block and times each, forward and backward, on one of the validation's
/// micro-batches (the loss is not measured). A node's weights are those with one gradient sum and
/// the optimizer's state, its activations what it keeps from forward to backward, where the model's
/// family knows; a value is as large as the block's output. Batch fields are no values: every stage
/// reads its own.
plan::Graph model_graph(const train::Settings& settings,
                        const std::shared_ptr<const input::SharedCorpus>& corpus);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
