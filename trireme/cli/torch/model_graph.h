// A configuration's model as a graph of measured blocks, for `trireme show partition`.
#pragma once

#include "trireme/input/shared_corpus.h"
#include "trireme/plan/partition/graph_partition.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::cli {

/// Builds one block after the other and times its forward and backward on a micro-batch of the
/// validation data (the loss is not measured). A node's weight bytes include one gradient sum and
/// the optimizer's state. Its activation bytes are those kept from forward to backward; 0 if the
/// model family does not know them. A value has the size of the block's output. Batch fields are
/// not values, since every stage reads its own.
plan::Graph model_graph(const train::Settings& settings,
                        const std::shared_ptr<const input::SharedCorpus>& corpus);

}  // namespace trireme::inline v0::cli
