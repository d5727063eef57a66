// `trireme show gossip`: ranks average with their neighbours (comm/mixing.h) over the simulated
// network, each starting from its own number. The recording holds each round's messages and the
// values after it. Nothing is computed from the graph; `about` says what the graph promises. Pure
// functions except record_gossip().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::show {

struct GossipMessage {
  int from = 0, to = 0;
  std::size_t bytes = 0;
  friend auto operator<=>(const GossipMessage&, const GossipMessage&) = default;
};

struct GossipRound {
  std::vector<double> values;           // [rank], after the round
  std::vector<GossipMessage> messages;  // that arrived in the round, ascending
};

struct GossipRecording {
  std::string graph, about;         // about: plan::describe
  int ranks = 1, period = 1;        // the graph's, in rounds
  double mean = 0;                  // of the initial values
  std::vector<GossipRound> rounds;  // rounds[0]: before the first
  /// The largest distance of a value from the mean after a round.
  double farthest(std::size_t round) const;
};

struct GossipOptions {
  std::string graph = "one_peer";
  int ranks = 8;
  int rounds = 0;          // 0: whole periods until all are within 1 % of the mean, at most 24
  std::uint64_t seed = 1;  // of a random graph, and of the simulated network
};

/// ConfigError for an unknown graph, and for ranks or rounds out of range.
GossipRecording record_gossip(const GossipOptions& options);

std::string name_of(const GossipRecording& recording);
/// A line with the values after the round and the largest distance, and one with its messages.
std::string round_text(const GossipRecording& recording, std::size_t round);
std::string text_of(const GossipRecording& recording);
std::string json_of(const GossipRecording& recording);
/// One circle of ranks with arrows per round, coloured by value; below, the values over the rounds.
std::string svg_of(const GossipRecording& recording);
std::string html_of(const GossipRecording& recording);

}  // namespace trireme::inline v0::show
