#include "trireme/rendezvous/tf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"

namespace trireme::inline v0::rendezvous {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_tf_config(
    const std::string& what, const std::string& advice =
                                 "Correct TF_CONFIG, or unset it and start the program by `trireme "
                                 "launch`.") {
  throw ConfigError("TF_CONFIG " + what, {.operation = "join", .advice = advice});
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
  if (task.type == "ps" || task.type == "evaluator") {
    refuse_tf_config("makes this process " + task.text() +
                         ", a role that only `trireme launch` and `trireme train` give so far",
                     "Leave ps and evaluator replicas out of the job: its chief and workers reduce "
                     "their gradients among themselves and evaluate. Or run `trireme launch "
                     "--workers N --servers M` in one of its containers.");
  }
  if (task.type != "chief" && task.type != "master" && task.type != "worker") {
    refuse_tf_config("has \"" + task.type +
                     "\" at /task/type, which is not chief, master, worker, ps or evaluator");
  }
  return task;
}

net::Endpoint address_at(const json& entry, const std::string& pointer) {
  const auto endpoint =
      entry.is_string() ? net::parse_endpoint(entry.get<std::string>()) : std::nullopt;
  if (!endpoint) refuse_tf_config("has no \"host:port\" at " + pointer);
  return *endpoint;
}

[[noreturn]] void refuse_sparse(const json& config, const Task& task) {
  const std::string pointer = "/sparseCluster/" + task.type + "/" + std::to_string(task.index);
  const json* const entry = find(config, pointer);
  if (!entry) refuse_tf_config("makes this process " + task.text() + ", but has no " + pointer);
  address_at(*entry, pointer);
  refuse_tf_config("has a sparseCluster, which names " + task.text() +
                       " alone: it does not say how many ranks there are",
                   "Leave enableDynamicWorker out of the TFJob: the number of a job's ranks is "
                   "fixed.");
}

// The addresses of the tasks of one type, none if the cluster has no such type. Adds them to `all`.
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

RankEnvironment place_among(const std::vector<net::Endpoint>& ranks, std::size_t rank) {
  const auto on_this_host = [&](const net::Endpoint& other) {
    return other.host == ranks[rank].host;
  };
  const auto self = ranks.begin() + static_cast<std::ptrdiff_t>(rank);
  RankEnvironment place;
  place.rank = static_cast<int>(rank);
  place.size = static_cast<int>(ranks.size());
  place.local_rank = static_cast<int>(std::count_if(ranks.begin(), self, on_this_host));
  place.local_size = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), on_this_host));
  place.meeting = {.name = "TF_CONFIG " + net::to_string(ranks[0]),
                   .host = ranks[0].host,
                   .port = ranks[0].port,
                   .one_host = place.local_size == place.size};
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
  if (find(config, "/sparseCluster")) refuse_sparse(config, task);
  std::set<std::string> all;
  std::vector<net::Endpoint> ranks = addresses_of(config, "chief", all);
  const auto masters = addresses_of(config, "master", all);
  ranks.insert(ranks.end(), masters.begin(), masters.end());
  if (ranks.size() > 1) refuse_tf_config("has several tasks at /cluster/chief and /cluster/master");
  const std::size_t chiefs = ranks.size();
  const auto workers = addresses_of(config, "worker", all);
  ranks.insert(ranks.end(), workers.begin(), workers.end());
  for (const char* other : {"ps", "evaluator"}) addresses_of(config, other, all);
  const json* const own = find(config, "/cluster/" + task.type);
  if (!own) {
    refuse_tf_config("makes this process " + task.text() + ", but has no /cluster/" + task.type);
  }
  if (task.index >= own->size()) {
    refuse_tf_config("has " + std::to_string(task.index) + " at /task/index, but /cluster/" +
                     task.type + " has " + std::to_string(own->size()) + " entries, from 0");
  }
  return place_among(ranks, task.type == "worker" ? chiefs + task.index : 0);
}

}  // namespace trireme::inline v0::rendezvous
