// Strategies by the names that other systems use: which parallel.* and server.* keys a name means,
// what each rank holds, and what moves in a step. One table; `parallel.strategy`,
// trireme::strategy() and `trireme show strategies` read it. Pure functions, thread safe.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/config/config.h"

namespace trireme::inline v0::plan {

/// A key that a name implies.
struct NamedKey {
  enum class Rule : std::uint8_t {
    Equal,    // another value contradicts the name
    AtLeast,  // a smaller integer contradicts the name; this value unless given
    Default   // this value unless given
  };
  std::string key;
  config::Value value;
  Rule rule = Rule::Equal;
};

/// How much of something a process holds. It is cut among all ranks, among the ranks of a host
/// (`cut_within_host`) or among the servers.
enum class Share : std::uint8_t {
  None,
  Whole,
  Slice,  // an equal part of every layer
  Layers  // some whole layers
};
struct Holding {
  Share weights = Share::Whole, gradients = Share::Whole, optimizer = Share::Whole;
};

/// Between whom something moves in a step.
enum class Between : std::uint8_t {
  AllRanks,
  RanksOfAHost,
  SameRanksOfHosts,   // ranks with the same number within their hosts
  ToTheNextRank,      // along the chain of stages
  ToThePreviousRank,  // back along it
  Neighbours,         // each sends to the next one, the last to the first
  RanksToServers,
  ServersToRanks
};
enum class Moved : std::uint8_t { Weights, Gradients, Activations };
struct Movement {
  Between between;
  Moved moved;
  std::string what;  // "sum of the gradients (all-reduce)"
};

struct NamedStrategy {
  std::string name;                 // without "Strategy"
  std::vector<std::string> others;  // its names in other systems
  std::string about;                // one sentence without its full stop
  std::vector<NamedKey> keys = {};
  Holding rank = {};
  std::vector<Movement> moves = {};
  int servers = 0;  // in drawings
  Holding server = {Share::Slice, Share::None, Share::Slice};
  int hosts = 1;  // in drawings
  bool cut_within_host = false;
  bool same_batch = false;   // all ranks compute the same micro-batches
  int most_ranks = 0;        // 0: any number
  bool one_host = false;     // refused over several hosts
  std::string missing = {};  // not empty: why it cannot run
  std::string advice = {};   // what to use then
};

std::span<const NamedStrategy> named_strategies();
/// Case, '_', '-' and the suffix "Strategy" do not matter; names of other systems are known, too.
/// ConfigError that lists the names, and the nearest one, for an unknown name.
const NamedStrategy& find_strategy(std::string_view name);

/// How expand() reads and changes a configuration.
struct KeyAccess {
  std::function<config::Value(const std::string& key)> value;
  /// The place where the user has set the key ("job.toml:7", "--set"); empty: nowhere.
  std::function<std::string(const std::string& key)> source;
  std::function<void(const std::string& key, const config::Value& value)> set;
};
/// Sets the keys that the name means, in the table's order. ConfigError if the strategy is missing
/// here, and for a key that contradicts it, which names both.
void expand(const NamedStrategy& strategy, const KeyAccess& access);
/// ConfigError if the strategy does not run on that many ranks or hosts.
void check_ranks(const NamedStrategy& strategy, int ranks, int hosts);

/// "parallel.sync = \"plain\", parallel.pipeline >= 2".
std::string describe_keys(const NamedStrategy& strategy);
/// "weights whole; gradients, optimizer state sliced", for `holding`.
std::string describe(const Holding& holding);
/// "all ranks", "ranks to servers".
std::string_view describe(Between between) noexcept;

}  // namespace trireme::inline v0::plan
