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

#include <cstddef>
#include <optional>
#include <string>

#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

/// The place of the process with this TF_CONFIG. All meet at rank 0's address. nullopt if it names
/// neither task nor cluster, or is one for parse_elastic_tf_config().
///
/// Throws ConfigError that names the faulty line and column, or JSON pointer.
std::optional<RankEnvironment> parse_tf_config(const std::string& text);

/// A place in an elastic TFJob, whose pods may be lost and come back. With enableDynamicWorker workers
/// come and go, too, and TF_CONFIG tells a worker its own address and those of all servers, a server
/// only its own:
///
///   {"sparseCluster": {"worker": {"1": "job-worker-1.ns.svc:2222"},
///                      "ps": ["job-ps-0.ns.svc:2222", ...]},
///    "task": {"type": "worker", "index": 1}}
///
/// So it says neither how many workers there may be, nor, to a server, how many servers there are.
struct ElasticPlace {
  std::string name;          // "worker 1", "ps 0"
  std::string own;           // address
  Role role = Role::Worker;  // Worker or Server
  bool chief = false;
  std::size_t index = 0;          // within the role; a chief is the first of the workers
  std::size_t workers = 0;        // that TF_CONFIG names, if it names all; otherwise 0
  std::size_t servers = 0;        // that this process is told of
  std::string first_server = {};  // server 0's address; empty: there is none, or it is not known
};

/// A TF_CONFIG that names several workers and all of them, 0 to n - 1, is an elastic job's only if that
/// was `asked` for; nullopt otherwise. Throws as above, also for the evaluator, and for a chief in a
/// "sparseCluster", who is told nothing.
std::optional<ElasticPlace> parse_elastic_tf_config(const std::string& text, bool asked);

}  // namespace trireme::inline v0::rendezvous
