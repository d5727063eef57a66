#include "trireme/plan/mixing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "trireme/base/mixed.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::plan {
namespace {

using Rows = std::vector<std::vector<MixingTerm>>;

constexpr int kMostRanks = 100'000;  // facts_of() of more takes minutes

// Rank i averages itself and rank i + offset for each offset, all with the same weight.
MixingRound circulant(int size, const std::vector<int>& offsets) {
  MixingRound round;
  for (int rank = 0; rank < size; ++rank) {
    std::map<int, double> row;
    const double weight = 1.0 / static_cast<double>(offsets.size() + 1);
    row[rank] += weight;
    for (const int offset : offsets) row[((rank + offset) % size + size) % size] += weight;
    std::vector<MixingTerm>& terms = round.rows.emplace_back();
    for (const auto& [from, share] : row) terms.push_back({from, share});
  }
  return round;
}

// 1, 2, 4, ... below `size`.
std::vector<int> powers_below(int size) {
  std::vector<int> powers;
  for (int power = 1; power < size; power *= 2) powers.push_back(power);
  return powers;
}

// Identical on every machine, unlike std::shuffle.
std::uint64_t next(std::uint64_t& state) { return mixed(state += kMixedStep); }

MixingRound matching(int size, std::uint64_t& state) {
  std::vector<int> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next(state) % i]);
  MixingRound round{Rows(order.size())};
  for (std::size_t i = 0; i < order.size(); i += 2) {
    const int a = order[i];
    if (i + 1 == order.size()) {
      round.rows[static_cast<std::size_t>(a)] = {{a, 1.0}};
      break;
    }
    const int b = order[i + 1];
    round.rows[static_cast<std::size_t>(a)] =
        round.rows[static_cast<std::size_t>(b)] = {{std::min(a, b), 0.5}, {std::max(a, b), 0.5}};
  }
  return round;
}

// True if rank 0 reaches all ranks along the edges (`back`: against them), over enough periods.
bool reaches_all(const Mixing& mixing, bool back) {
  std::vector<bool> seen(static_cast<std::size_t>(mixing.size), false);
  std::vector<int> open = {0};
  seen[0] = true;
  std::vector<std::vector<int>> edges(seen.size());
  for (const MixingRound& round : mixing.rounds) {
    for (std::size_t to = 0; to < round.rows.size(); ++to) {
      for (const MixingTerm& term : round.rows[to]) {
        if (term.weight <= 0) continue;
        const auto from = static_cast<std::size_t>(term.from);
        edges[back ? to : from].push_back(static_cast<int>(back ? from : to));
      }
    }
  }
  while (!open.empty()) {
    const auto rank = static_cast<std::size_t>(open.back());
    open.pop_back();
    for (const int other : edges[rank]) {
      if (seen[static_cast<std::size_t>(other)]) continue;
      seen[static_cast<std::size_t>(other)] = true;
      open.push_back(other);
    }
  }
  return std::ranges::all_of(seen, [](bool one) { return one; });
}

bool is_connected(const Mixing& mixing) {
  return reaches_all(mixing, false) && reaches_all(mixing, true);
}

// Enough matchings for every rank to reach every other; drawn again in the rare case they do not.
std::vector<MixingRound> matchings(int size, std::uint64_t seed) {
  const std::size_t period = 4 * powers_below(size).size();
  std::uint64_t state = seed;
  for (;;) {
    Mixing mixing{"random", size, {}};
    while (mixing.rounds.size() < period) mixing.rounds.push_back(matching(size, state));
    if (is_connected(mixing)) return mixing.rounds;
  }
}

// True if every row and column sums to 1 within 1e-12 and nothing is negative.
bool doubly_stochastic(const MixingRound& round) {
  std::vector<double> column(round.rows.size(), 0.0);
  for (const auto& row : round.rows) {
    double sum = 0;
    for (const MixingTerm& term : row) {
      if (!(term.weight >= 0) || term.from < 0 || term.from >= static_cast<int>(column.size()))
        return false;
      sum += term.weight;
      column[static_cast<std::size_t>(term.from)] += term.weight;
    }
    if (std::abs(sum - 1) > 1e-12) return false;
  }
  return std::ranges::all_of(column, [](double sum) { return std::abs(sum - 1) <= 1e-12; });
}

bool doubly_stochastic(const Mixing& mixing) {
  return std::ranges::all_of(mixing.rounds,
                             [](const MixingRound& round) { return doubly_stochastic(round); });
}

// The messages of the rank that sends most.
int most_messages(const MixingRound& round) {
  std::vector<int> sent(round.rows.size(), 0);
  for (std::size_t to = 0; to < round.rows.size(); ++to)
    for (const MixingTerm& term : round.rows[to])
      if (term.from != static_cast<int>(to)) ++sent[static_cast<std::size_t>(term.from)];
  return sent.empty() ? 0 : *std::ranges::max_element(sent);
}

void remove_mean(std::vector<double>& x) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) /
                      static_cast<double>(std::max<std::size_t>(x.size(), 1));
  for (double& value : x) value -= mean;
}

double length(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

std::vector<double> apply(const MixingRound& round, const std::vector<double>& x, bool transposed) {
  std::vector<double> y(x.size(), 0.0);
  for (std::size_t row = 0; row < round.rows.size(); ++row) {
    for (const MixingTerm& term : round.rows[row]) {
      const auto from = static_cast<std::size_t>(term.from);
      if (transposed) {
        y[from] += term.weight * x[row];
      } else {
        y[row] += term.weight * x[from];
      }
    }
  }
  return y;
}

// The largest singular value of the period's product, orthogonal to the mean: power iteration on
// its Gram matrix.
double largest_left(const Mixing& mixing) {
  if (mixing.size == 1) return 0;
  std::vector<double> x(static_cast<std::size_t>(mixing.size));
  std::uint64_t state = 1;
  for (double& value : x) value = static_cast<double>(next(state) >> 11) * 0x1p-53 - 0.5;
  double value = 0;
  for (int i = 0; i < 1000; ++i) {
    remove_mean(x);
    const double size = length(x);
    if (size < 1e-14) return 0;
    for (double& one : x) one /= size;
    std::vector<double> y = x;
    for (const MixingRound& round : mixing.rounds) y = apply(round, y, false);
    remove_mean(y);
    const double left = length(y);
    const bool still = std::abs(left - value) < 1e-13 && i > 50;
    value = left;
    if (still || value < 1e-14) break;
    for (auto round = mixing.rounds.rbegin(); round != mixing.rounds.rend(); ++round)
      y = apply(*round, y, true);
    x = std::move(y);
  }
  return value < 1e-12 ? 0 : value;
}

}  // namespace

std::vector<int> MixingRound::receivers(int rank) const {
  std::vector<int> receivers;
  for (std::size_t to = 0; to < rows.size(); ++to) {
    if (static_cast<int>(to) == rank) continue;
    for (const MixingTerm& term : rows[to])
      if (term.from == rank) receivers.push_back(static_cast<int>(to));
  }
  return receivers;
}

const std::vector<std::string>& mixing_graphs() {
  static const std::vector<std::string> names = {"ring", "exponential", "one_peer", "random"};
  return names;
}

Mixing make_mixing(const std::string& graph, int size, std::uint64_t seed) {
  if (size < 1 || size > kMostRanks)
    refuse("gossip", counted(size, "rank") + " cannot gossip",
           "Start 1 to " + grouped(kMostRanks) + ".");
  const auto& names = mixing_graphs();
  if (std::ranges::find(names, graph) == names.end())
    refuse("gossip", "parallel.graph = \"" + graph + "\" names no graph",
           "Use ring, exponential, one_peer or random.");
  Mixing mixing{graph, size, {}};
  if (size == 1) {
    mixing.rounds = {circulant(1, {})};
  } else if (graph == "ring") {
    mixing.rounds = {circulant(size, size == 2 ? std::vector<int>{1} : std::vector<int>{-1, 1})};
  } else if (graph == "exponential") {
    std::vector<int> offsets = powers_below(size);
    for (int& offset : offsets) offset = -offset;
    mixing.rounds = {circulant(size, offsets)};
  } else if (graph == "one_peer") {
    for (const int power : powers_below(size)) mixing.rounds.push_back(circulant(size, {-power}));
  } else {
    mixing.rounds = matchings(size, seed);
  }
  return mixing;
}

MixingFacts facts_of(const Mixing& mixing) {
  MixingFacts facts;
  facts.doubly_stochastic = doubly_stochastic(mixing);
  facts.connected = is_connected(mixing);
  facts.left = largest_left(mixing);
  facts.gap = 1 - std::pow(facts.left, 1.0 / static_cast<double>(mixing.rounds.size()));
  for (const MixingRound& round : mixing.rounds)
    facts.most_messages = std::max(facts.most_messages, most_messages(round));
  return facts;
}

void check(const Mixing& mixing) {
  const std::string name =
      "the graph \"" + mixing.graph + "\" of " + std::to_string(mixing.size) + " ranks";
  if (!doubly_stochastic(mixing))
    refuse("gossip", "the weights of " + name + " do not add up to 1 in every row and column",
           "Then the ranks' mean would drift: this is a bug of the graph.");
  if (!is_connected(mixing))
    refuse("gossip", name + " is not connected: some ranks never receive anything from others",
           "Use another graph.");
}

std::string describe(const Mixing& mixing) { return describe(mixing, facts_of(mixing)); }

std::string describe(const Mixing& mixing, const MixingFacts& facts) {
  const std::size_t period = mixing.rounds.size();
  std::string text = mixing.graph + " of " + counted(mixing.size, "rank") + ": at most " +
                     counted(facts.most_messages, "message") + " a rank";
  if (period > 1) text += ", a period of " + std::to_string(period) + " rounds";
  text += facts.doubly_stochastic ? ", doubly stochastic" : ", NOT doubly stochastic";
  if (!facts.connected) text += ", NOT connected";
  if (facts.left == 0)
    return text + ", at the mean after " +
           (period == 1 ? "every round" : std::to_string(period) + " rounds");
  return text + formatted(", spectral gap %.3g a round", facts.gap);
}

}  // namespace trireme::inline v0::plan
