#include "trireme/rendezvous/launchers/tf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/base/refuse.h"
#include "trireme/net/endpoint.h"

namespace trireme::inline v0::rendezvous {
namespace {

using nlohmann::json;

constexpr const char* kNoEvaluator =
    "Leave Evaluator out of a TFJob whose pods come and go, and run `trireme eval RUN --follow` "
    "in a pod of its own.";

[[noreturn]] void refuse_tf_config(
    const std::string& what, const std::string& advice =
                                 "Correct TF_CONFIG, or unset it and start the program by `trireme "
                                 "launch`.") {
  refuse("join", "TF_CONFIG " + what, advice);
}

json parse_json(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const std::string what = error.what();  // "[json.exception...] parse error at line 1, ..."
    refuse_tf_config("is not JSON: " + what.substr(std::min(what.find("] ") + 2, what.size())));
  }
}

const json* find(const json& config, const std::string& pointer) {
  const json::json_pointer place(pointer);
  return config.contains(place) ? &config.at(place) : nullptr;
}

struct Task {
  std::string type;
  std::size_t index = 0;
  std::string text() const { return type + " " + std::to_string(index); }
};

Task task_of(const json& config) {
  const json* const type = find(config, "/task/type");
  const json* const index = find(config, "/task/index");
  if (!type || !type->is_string()) refuse_tf_config("has no string at /task/type");
  if (!index || !index->is_number_unsigned()) {
    refuse_tf_config("has no number from 0 at /task/index");
  }
  Task task{type->get<std::string>(), index->get<std::size_t>()};
  for (const char* known : {"chief", "master", "worker", "ps", "evaluator"})
    if (task.type == known) return task;
  refuse_tf_config("has \"" + task.type +
                   "\" at /task/type, which is not chief, master, worker, ps or evaluator");
}

net::Endpoint address_at(const json& entry, const std::string& pointer) {
  const auto endpoint =
      entry.is_string() ? net::parse_endpoint(entry.get<std::string>()) : std::nullopt;
  if (!endpoint) refuse_tf_config("has no \"host:port\" at " + pointer);
  return *endpoint;
}

// A sparse cluster that names workers 0 to n - 1, several of them, written as a dense one. nullopt for
// any other.
std::optional<json> dense_from(const json& config) {
  const json* const workers = find(config, "/sparseCluster/worker");
  json list = json::array();
  while (workers && workers->is_object() && workers->contains(std::to_string(list.size())))
    list.push_back(workers->at(std::to_string(list.size())));
  if (list.size() < 2 || list.size() != workers->size()) return std::nullopt;
  json dense = {{"task", config.at("task")}, {"cluster", {{"worker", list}}}};
  const json* const servers = find(config, "/sparseCluster/ps");
  if (servers && !servers->is_null()) dense["cluster"]["ps"] = *servers;
  return dense;
}

// The address of server 0, by that of server `index`: "job-ps-0.ns.svc" by "job-ps-2.ns.svc". Empty
// if a TFJob's operator has not named it.
std::string first_server_by(const net::Endpoint& own, std::size_t index) {
  const std::string label = own.host.substr(0, own.host.find('.'));
  const std::string ending = "-ps-" + std::to_string(index);
  if (index == 0) return net::to_string(own);
  if (!label.ends_with(ending) || label == ending) return "";
  const std::string first = label.substr(0, label.size() - ending.size()) + "-ps-0";
  return net::to_string({first + own.host.substr(label.size()), own.port});
}

// The servers that a sparse cluster names.
std::vector<net::Endpoint> servers_of_sparse(const json& config) {
  const json* const list = find(config, "/sparseCluster/ps");
  std::vector<net::Endpoint> servers;
  if (!list || list->is_null()) return servers;
  if (!list->is_array()) refuse_tf_config("has no list at /sparseCluster/ps");
  for (const json& entry : *list)
    servers.push_back(address_at(entry, "/sparseCluster/ps/" + std::to_string(servers.size())));
  return servers;
}

// The addresses of a type's tasks; none if the cluster lacks the type. Adds them to `all`.
std::vector<net::Endpoint> addresses_of(const json& config, const std::string& type,
                                        std::set<std::string>& all) {
  const std::string pointer = "/cluster/" + type;
  const json* const list = find(config, pointer);
  std::vector<net::Endpoint> addresses;
  if (!list) return addresses;
  if (!list->is_array()) refuse_tf_config("has no list at " + pointer);
  for (const json& entry : *list) {
    const std::string place = pointer + "/" + std::to_string(addresses.size());
    addresses.push_back(address_at(entry, place));
    if (!all.insert(net::to_string(addresses.back())).second) {
      refuse_tf_config("has " + net::to_string(addresses.back()) + " at " + place +
                       " and at another place: two tasks cannot have one address");
    }
  }
  return addresses;
}

// A cluster's tasks by role; the ranks begin with the chief.
struct Cluster {
  std::vector<net::Endpoint> ranks, servers, evaluators;
  std::size_t chiefs = 0;
};

Cluster cluster_of(const json& config) {
  std::set<std::string> all;
  Cluster cluster;
  cluster.ranks = addresses_of(config, "chief", all);
  const auto masters = addresses_of(config, "master", all);
  cluster.ranks.insert(cluster.ranks.end(), masters.begin(), masters.end());
  cluster.chiefs = cluster.ranks.size();
  if (cluster.chiefs > 1)
    refuse_tf_config("has several tasks at /cluster/chief and /cluster/master");
  const auto workers = addresses_of(config, "worker", all);
  cluster.ranks.insert(cluster.ranks.end(), workers.begin(), workers.end());
  cluster.servers = addresses_of(config, "ps", all);
  cluster.evaluators = addresses_of(config, "evaluator", all);
  if (cluster.evaluators.size() > 1)
    refuse_tf_config("has several evaluators at /cluster/evaluator, and a job has one");
  if (cluster.ranks.empty()) refuse_tf_config("has no chief and no worker at /cluster");
  return cluster;
}

// The cluster need not name the evaluator.
void check_index(const json& config, const Task& task) {
  const json* const own = find(config, "/cluster/" + task.type);
  std::size_t count = own ? own->size() : 0;
  if (task.type == "evaluator") count = 1;
  if (count == 0) {
    refuse_tf_config("makes this process " + task.text() + ", but has no /cluster/" + task.type);
  }
  if (task.index >= count) {
    refuse_tf_config(
        "has " + std::to_string(task.index) + " at /task/index, but " +
        (own ? "/cluster/" + task.type + " has " + std::to_string(count) + " entries, from 0"
             : "a job has one evaluator, number 0"));
  }
}

// The place of task `index` of its role, whose tasks are at `own`.
RankEnvironment place_among(const Cluster& cluster, const std::vector<net::Endpoint>& own,
                            std::size_t index) {
  const auto is_at = [](const std::string& host) {
    return [host](const net::Endpoint& other) { return other.host == host; };
  };
  const net::Endpoint& first = cluster.ranks.front();
  const auto all_at = [&](const std::vector<net::Endpoint>& some) {
    return std::all_of(some.begin(), some.end(), is_at(first.host));
  };
  RankEnvironment place;
  place.rank = static_cast<int>(index);
  place.size = static_cast<int>(own.size());
  place.workers = static_cast<int>(cluster.ranks.size());
  place.servers = static_cast<int>(cluster.servers.size());
  place.evaluator = !cluster.evaluators.empty();
  const auto self = own.begin() + static_cast<std::ptrdiff_t>(index);
  place.local_rank = static_cast<int>(std::count_if(own.begin(), self, is_at(self->host)));
  place.local_size = static_cast<int>(std::count_if(own.begin(), own.end(), is_at(self->host)));
  place.meeting = {.name = "TF_CONFIG " + net::to_string(first),
                   .host = first.host,
                   .port = first.port,
                   .one_host = all_at(cluster.ranks) && all_at(cluster.servers),
                   .admits_evaluator = true};
  return place;
}

RankEnvironment place_of(const Cluster& cluster, const Task& task) {
  if (task.type == "ps") {
    RankEnvironment place = place_among(cluster, cluster.servers, task.index);
    place.role = Role::Server;
    return place;
  }
  if (task.type == "evaluator") {  // nobody needs its own address
    RankEnvironment place = place_among(cluster, {cluster.ranks.front()}, 0);
    place.role = Role::Evaluator;
    place.evaluator = true;
    return place;
  }
  RankEnvironment place =
      place_among(cluster, cluster.ranks, task.type == "worker" ? cluster.chiefs + task.index : 0);
  place.chief = task.type != "worker";
  return place;
}

// A single worker meets nobody.
void check_evaluator(const RankEnvironment& place) {
  if (place.role != Role::Evaluator || place.workers + place.servers > 1) return;
  refuse_tf_config(
      "makes this process the evaluator of one worker, which does not wait for any other "
      "process",
      "Run `trireme eval RUN` when it has trained, or give the job two workers.");
}

// The place of a process whose cluster names all others.
ElasticPlace place_in_dense(const json& config, const Task& task) {
  if (task.type == "evaluator")
    refuse_tf_config("makes this process " + task.text() + ", and an elastic job has none",
                     kNoEvaluator);
  const Cluster cluster = cluster_of(config);
  check_index(config, task);
  const RankEnvironment place = place_of(cluster, task);
  const auto index = static_cast<std::size_t>(place.rank);
  const auto& own = place.role == Role::Server ? cluster.servers : cluster.ranks;
  return {.name = task.text(),
          .own = net::to_string(own[index]),
          .role = place.role,
          .chief = place.chief,
          .index = index,
          .workers = cluster.ranks.size(),
          .servers = cluster.servers.size(),
          .first_server = cluster.servers.empty() ? "" : net::to_string(cluster.servers.front())};
}

ElasticPlace place_in_sparse(const json& config, const Task& task) {
  const bool server = task.type == "ps";
  if (!server && task.type != "worker") {
    refuse_tf_config("has a sparseCluster, which tells " + task.text() + " nothing of the others",
                     task.type == "evaluator"
                         ? kNoEvaluator
                         : "Leave Chief and Master out of a TFJob with enableDynamicWorker: worker "
                           "0 is rank 0.");
  }
  const std::string pointer =
      "/sparseCluster/" + task.type + "/" + std::to_string(server ? 0 : task.index);
  const json* const entry = find(config, pointer);
  if (!entry) refuse_tf_config("makes this process " + task.text() + ", but has no " + pointer);
  const net::Endpoint own = address_at(*entry, pointer);
  ElasticPlace place{.name = task.text(),
                     .own = net::to_string(own),
                     .role = server ? Role::Server : Role::Worker,
                     .index = task.index};
  const std::vector<net::Endpoint> servers = servers_of_sparse(config);
  if (server) {
    place.first_server = first_server_by(own, task.index);
  } else if (!servers.empty()) {
    place.servers = servers.size();
    place.first_server = net::to_string(servers.front());
  }
  return place;
}

}  // namespace

std::optional<RankEnvironment> parse_tf_config(const std::string& text) {
  const json config = parse_json(text);
  if (!config.is_object()) refuse_tf_config("is not a JSON object");
  if (!find(config, "/task") && !find(config, "/cluster") && !find(config, "/sparseCluster")) {
    return std::nullopt;
  }
  const Task task = task_of(config);
  const auto dense = find(config, "/sparseCluster") ? dense_from(config) : std::optional(config);
  if (!dense) return std::nullopt;
  const Cluster cluster = cluster_of(*dense);
  check_index(*dense, task);
  const RankEnvironment place = place_of(cluster, task);
  check_evaluator(place);
  return place;
}

std::optional<ElasticPlace> parse_elastic_tf_config(const std::string& text, bool asked) {
  const json config = parse_json(text);
  if (!config.is_object()) return std::nullopt;
  const bool sparse = find(config, "/sparseCluster") != nullptr;
  if (!sparse && !(asked && find(config, "/cluster"))) return std::nullopt;
  const Task task = task_of(config);
  const auto dense = sparse ? dense_from(config) : std::optional(config);
  if (!dense) return place_in_sparse(config, task);
  return asked ? std::optional(place_in_dense(*dense, task)) : std::nullopt;
}

}  // namespace trireme::inline v0::rendezvous
