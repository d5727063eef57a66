// TF_CONFIG, the variable in which a TFJob of Kubeflow tells a process its place:
//
//   {"cluster": {"chief": ["job-chief-0.ns.svc:2222"],
//                "worker": ["job-worker-0.ns.svc:2222", ...]},
//    "task": {"type": "worker", "index": 0}, "environment": "cloud"}
//
// Rank 0 is the chief ("master" is its old name), or worker 0 if there is none. The other workers
// follow by index. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "trireme/rendezvous/environment.h"

namespace trireme::inline v0::rendezvous {

/// The place of the process that has this TF_CONFIG: rank and local rank among the chief and the
/// workers, which meet at rank 0's address. nullopt: it names neither a task nor a cluster.
///
/// Throws ConfigError that names the line and column, or the JSON pointer, of what is wrong. Tasks
/// "ps" and "evaluator" are refused, and so is the sparse form ("sparseCluster"), in which a TFJob
/// with enableDynamicWorker tells a worker its own address only: the number of ranks is unknown.
std::optional<RankEnvironment> parse_tf_config(const std::string& text);

}  // namespace trireme::inline v0::rendezvous
