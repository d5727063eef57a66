// TF_CONFIG, the variable in which a TFJob of Kubeflow tells a process its place:
//
//   {"cluster": {"chief": ["job-chief-0.ns.svc:2222"],
//                "worker": ["job-worker-0.ns.svc:2222", ...]},
//    "task": {"type": "worker", "index": 0}, "environment": "cloud"}
//
// Rank 0 is the chief ("master" is its old name), or worker 0 if there is none. The other workers
// follow by index. Tasks "ps" are servers. The operator leaves evaluators out of the cluster, so
// the others do not know whether there is one. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

/// The place of the process with this TF_CONFIG. All meet at rank 0's address. nullopt if it names
/// neither task nor cluster.
///
/// Throws ConfigError that names the faulty line and column, or JSON pointer. In the sparse form
/// ("sparseCluster") a TFJob with enableDynamicWorker tells a worker its own address and those of
/// the servers. It is refused, because the number of ranks is unknown, unless it names workers 0 to
/// n - 1, several of them.
std::optional<RankEnvironment> parse_tf_config(const std::string& text);

}  // namespace trireme::inline v0::rendezvous
