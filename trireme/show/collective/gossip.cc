#include "trireme/show/collective/gossip.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/comm/mixing.h"
#include "trireme/comm/simulate.h"
#include "trireme/plan/mixing.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

constexpr int kMost = 24;  // limit of ranks and of rounds in a picture

int rounds_of(const plan::Mixing& mixing, const plan::MixingFacts& facts, int asked) {
  if (asked > 0) return asked;
  const int period = static_cast<int>(mixing.rounds.size());
  double left = 1;
  for (int rounds = period;; rounds += period) {
    left *= facts.left;
    if (left <= 0.01 || rounds + period > kMost) return rounds;
  }
}

std::string number(double value) {
  const std::string text = fixed(value, 3);
  return std::string(text.size() < 7 ? 7 - text.size() : 0, ' ') + text;
}

}  // namespace

double GossipRecording::farthest(std::size_t round) const {
  double most = 0;
  for (const double value : rounds[round].values) most = std::max(most, std::abs(value - mean));
  return most;
}

GossipRecording record_gossip(const GossipOptions& options) {
  check_range("ranks", options.ranks, 2, kMost);
  if (options.rounds != 0) check_range("rounds", options.rounds, 1, kMost);
  const plan::Mixing mixing = plan::make_mixing(options.graph, options.ranks, options.seed);
  plan::check(mixing);
  const plan::MixingFacts facts = plan::facts_of(mixing);
  const int count = rounds_of(mixing, facts, options.rounds);
  GossipRecording recording{.graph = options.graph,
                            .about = plan::describe(mixing, facts),
                            .ranks = options.ranks,
                            .period = static_cast<int>(mixing.rounds.size()),
                            .mean = (options.ranks - 1) / 2.0};
  recording.rounds.resize(static_cast<std::size_t>(count) + 1);
  for (GossipRound& round : recording.rounds)
    round.values.resize(static_cast<std::size_t>(options.ranks));
  comm::SimulationOptions simulation;
  simulation.network.seed = options.seed;
  comm::simulate(options.ranks, simulation, [&](comm::SimulatedRank& rank) {
    const auto own = static_cast<std::size_t>(rank.rank);
    double value = rank.rank;
    std::size_t now = 0;
    recording.rounds[now].values[own] = value;
    comm::GossipMixer mixer(*rank.world, 1 << 20, [&](int peer, std::size_t bytes, bool received) {
      if (received) recording.rounds[now].messages.push_back({peer, rank.rank, bytes});
    });
    const Buffer buffer = Buffer::of(std::span(&value, 1));
    for (int round = 0; round < count; ++round) {
      now = static_cast<std::size_t>(round) + 1;
      mixer.mix(mixing.round(round), {&buffer, 1});
      recording.rounds[now].values[own] = value;
    }
  });
  for (GossipRound& round : recording.rounds) std::ranges::sort(round.messages);
  return recording;
}

std::string name_of(const GossipRecording& recording) {
  return "gossip " + recording.graph + ", " + std::to_string(recording.ranks) + " ranks";
}

std::string round_text(const GossipRecording& recording, std::size_t round) {
  const GossipRound& one = recording.rounds[round];
  std::string text =
      round == 0 ? "before  " : "round " + std::to_string(round) + (round < 10 ? " " : "");
  for (const double value : one.values) text += " " + number(value);
  text += "   farthest " + fixed(recording.farthest(round), 3) + "\n";
  if (round == 0) return text;
  text += "        ";
  for (const GossipMessage& message : one.messages)
    text += " " + std::to_string(message.from) + ">" + std::to_string(message.to);
  return text + "\n";
}

std::string text_of(const GossipRecording& recording) {
  std::string text = name_of(recording) + ": rank r begins with the number r, the mean is " +
                     fixed(recording.mean, 3) + "\n" + recording.about + "\n\nrank    ";
  for (int rank = 0; rank < recording.ranks; ++rank) {
    const std::string label = std::to_string(rank);
    text += std::string(8 - label.size(), ' ') + label;
  }
  text += "\n";
  for (std::size_t round = 0; round < recording.rounds.size(); ++round)
    text += round_text(recording, round);
  std::size_t messages = 0;
  for (const GossipRound& round : recording.rounds) messages += round.messages.size();
  return text + "\n" + std::to_string(messages) + " messages in " +
         std::to_string(recording.rounds.size() - 1) +
         " rounds; a>b: rank a's numbers went to rank b\n";
}

std::string json_of(const GossipRecording& recording) {
  std::string text = json_line({{"event", "show"},
                                {"gossip", recording.graph},
                                {"ranks", recording.ranks},
                                {"period", recording.period},
                                {"mean", recording.mean},
                                {"about", recording.about}});
  for (std::size_t round = 0; round < recording.rounds.size(); ++round) {
    auto messages = nlohmann::ordered_json::array();
    for (const GossipMessage& one : recording.rounds[round].messages)
      messages.push_back({{"from", one.from}, {"to", one.to}, {"bytes", one.bytes}});
    text += json_line({{"event", "round"},
                       {"round", round},
                       {"values", recording.rounds[round].values},
                       {"farthest", recording.farthest(round)},
                       {"messages", std::move(messages)}});
  }
  return text;
}

}  // namespace trireme::inline v0::show
