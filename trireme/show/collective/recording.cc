#include "trireme/show/collective/recording.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/words.h"
#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/rounds/route.h"
#include "trireme/comm/simulate.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

using comm::RunEvent;

constexpr int kBits = 3;                   // per rank
constexpr std::size_t kChunkElements = 8;  // one cache line of I64; exceeds a message header

Parts parts_in(std::span<const std::byte> data) {
  std::uint64_t value = 0;
  std::memcpy(&value, data.data(), std::min(data.size(), sizeof value));
  Parts parts;
  for (int rank = 0; value != 0; ++rank, value >>= kBits)
    parts.insert(parts.end(), value & ((1u << kBits) - 1), rank);
  return parts;
}

struct OwnRound {
  std::vector<Message> sent, received;
  std::vector<Cell> cells;  // after it
  std::size_t added = 0;
};

// The recording of one rank. rounds[0] is the state before the first round.
struct OwnRun {
  std::vector<OwnRound> rounds;
  std::vector<Parts> out;
};

class Listener {
 public:
  Listener(OwnRun& run, int rank) : run_(run), rank_(rank) {}

  void operator()(const RunEvent& event) {
    const auto chunk = static_cast<std::size_t>(event.chunk);
    switch (event.kind) {
      case RunEvent::Kind::Begin:
        chunks_ = chunk;
        run_.out.resize(chunks_);
        now_.cells.resize(chunks_);
        break;
      case RunEvent::Kind::Hold:
        if (!event.data.empty()) now_.cells[chunk].push_back(parts_in(event.data));
        break;
      case RunEvent::Kind::Send:
        now_.sent.push_back(message(event, rank_, event.peer));
        break;
      case RunEvent::Kind::Receive:
        now_.received.push_back(message(event, event.peer, rank_));
        break;
      case RunEvent::Kind::Add:
        now_.added += event.data.size();
        break;
      case RunEvent::Kind::RoundEnd:
        for (Cell& cell : now_.cells) std::sort(cell.begin(), cell.end());
        run_.rounds.push_back(std::exchange(now_, {}));
        now_.cells.resize(chunks_);
        break;
      case RunEvent::Kind::Out:
        run_.out[chunk] = parts_in(event.data);
        break;
      case RunEvent::Kind::End:
        break;
    }
  }

 private:
  static Message message(const RunEvent& event, int from, int to) {
    return {from, to, event.chunk, event.copy, event.read, parts_in(event.data), event.data.size()};
  }

  OwnRun& run_;
  const int rank_;
  std::size_t chunks_ = 0;
  OwnRound now_;
};

// Finds the step in which each round of each rank ends.
class Alignment {
 public:
  explicit Alignment(const std::vector<OwnRun>& runs) : runs_(runs), ends_(runs.size(), {0}) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < runs_.size(); ++rank)
        while (ends_[rank].size() < runs_[rank].rounds.size() && end_round(rank)) moved = true;
    }
  }
  const std::vector<std::vector<std::size_t>>& ends() const { return ends_; }

 private:
  // A message is sent in the step after the one in which its sender's previous round ended.
  bool end_round(std::size_t rank) {
    const std::size_t index = ends_[rank].size();
    const OwnRound& round = runs_[rank].rounds[index];
    if (left_.insert({rank, index}).second)
      for (const Message& sent : round.sent)
        under_way_[{sent.from, sent.to}].push_back(ends_[rank].back() + 1);
    std::map<int, std::size_t> needed;
    for (const Message& received : round.received)
      if (!received.read) ++needed[received.from];
    for (const auto& [from, count] : needed)
      if (under_way_[{from, static_cast<int>(rank)}].size() < count) return false;
    std::size_t end = ends_[rank].back() + 1;
    for (const Message& received : round.received) {
      if (received.read) continue;
      auto& queue = under_way_[{received.from, received.to}];
      end = std::max(end, queue.front());
      queue.pop_front();
    }
    ends_[rank].push_back(end);
    return true;
  }

  const std::vector<OwnRun>& runs_;
  std::vector<std::vector<std::size_t>> ends_;
  std::set<std::pair<std::size_t, std::size_t>> left_;                // rank, round
  std::map<std::pair<int, int>, std::deque<std::size_t>> under_way_;  // from, to: step
};

std::vector<Step> steps_of(const std::vector<OwnRun>& runs) {
  const auto ends = Alignment(runs).ends();
  std::size_t last = 0;
  for (const auto& own : ends) last = std::max(last, own.back());
  std::vector<Step> steps(last + 1);
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    std::size_t round = 0;
    for (std::size_t step = 0; step <= last; ++step) {
      std::size_t added = 0;
      while (round + 1 < ends[rank].size() && ends[rank][round + 1] == step) {
        const OwnRound& own = runs[rank].rounds[++round];
        added += own.added;
        auto& messages = steps[step].messages;
        messages.insert(messages.end(), own.received.begin(), own.received.end());
      }
      steps[step].cells.push_back(runs[rank].rounds[round].cells);
      steps[step].added.push_back(added);
    }
  }
  return steps;
}

// The expected final content of each rank's chunks.
std::vector<std::vector<Parts>> wanted(const RecordOptions& options, int num_chunks) {
  const comm::Layout layout = comm::layout_of(options.kind, options.ranks,
                                              leaves_of(options.kind, options.ranks), options.root);
  std::vector<std::vector<Parts>> all(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      Parts& parts = all[static_cast<std::size_t>(rank)].emplace_back();
      for (int other = 0; layout.wanted(rank, chunk) && other < options.ranks; ++other)
        if (!layout.initial(other, chunk).empty()) parts.push_back(other);
    }
  }
  return all;
}

// All-to-all has a chunk for every ordered pair of ranks. Renames the chunks of a rank by their
// position in its `out`, so that n columns show everything.
void keep_places_of_out(Recording& recording) {
  const int n = recording.ranks;
  const auto own = [n](auto& rows) {  // rank j keeps chunks (0, j) ... (n-1, j)
    for (int rank = 0; rank < n; ++rank) {
      auto& row = rows[static_cast<std::size_t>(rank)];
      for (int from = 0; from < n; ++from)
        row[static_cast<std::size_t>(from)] = row[static_cast<std::size_t>(from * n + rank)];
      row.resize(static_cast<std::size_t>(n));
    }
  };
  for (Step& step : recording.steps) {
    own(step.cells);
    for (Message& message : step.messages) message.chunk /= n;
  }
  own(recording.out);
  own(recording.want);
  recording.num_chunks = n;
}

// [rank]: bytes that it sent, or read from others' memory.
std::vector<std::size_t> moved_bytes(const Recording& recording, bool read) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(recording.ranks));
  for (const Step& step : recording.steps)
    for (const Message& one : step.messages)
      if (one.read == read) bytes[static_cast<std::size_t>(read ? one.to : one.from)] += one.bytes;
  return bytes;
}

void check(const RecordOptions& options) {
  require(options.ranks >= 2 && options.ranks <= kMostRanks,
          counted(options.ranks, "rank") + " cannot be shown",
          "Give 2 to " + std::to_string(kMostRanks) + ".");
  require(options.root >= 0 && options.root < options.ranks,
          "there is no rank " + std::to_string(options.root), "Give a root below --ranks.");
  require(options.hosts >= 1 && options.hosts <= options.ranks,
          std::to_string(options.hosts) + " hosts for " + std::to_string(options.ranks) + " ranks",
          "Give at least 1 and at most as many as there are ranks.");
}

}  // namespace

std::vector<int> hosts_of(int ranks, int hosts) {
  std::vector<int> numbers;
  for (int rank = 0; rank < ranks; ++rank) numbers.push_back(rank * hosts / ranks);
  return numbers;
}

Recording record(const RecordOptions& options) {
  check(options);
  Recording recording{.kind = options.kind,
                      .algorithm = options.algorithm,
                      .ranks = options.ranks,
                      .root = has_root(options.kind) ? options.root : 0,
                      .host_of_rank = hosts_of(options.ranks, options.hosts)};
  int chunks = options.ranks;
  if (is_direct(options.kind, options.algorithm)) {
    recording.about = "in shared memory: rank r adds slice r of everybody's and gives it to all";
  } else {
    const comm::AlgorithmEntry& entry = entry_named(options.kind, options.algorithm);
    recording.about = entry.about;
    chunks = comm::record(entry.name, entry.generator, options.ranks, recording.root,
                          recording.host_of_rank)
                 .num_chunks;
  }
  recording.num_chunks = chunks;
  const bool pairs = options.kind == comm::OpKind::AllToAll;
  const std::size_t count = kChunkElements * static_cast<std::size_t>(chunks) /
                            static_cast<std::size_t>(pairs ? options.ranks : 1);
  recording.buffer_bytes = count * sizeof(std::int64_t);

  std::vector<OwnRun> runs(static_cast<std::size_t>(options.ranks));
  comm::SimulationOptions simulation;
  simulation.network.seed = options.seed;
  for (int host : recording.host_of_rank)
    simulation.world.host_of_rank.push_back("host " + std::to_string(host));
  simulation.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    world.on_run = Listener(runs[static_cast<std::size_t>(rank.rank)], rank.rank);
  };
  comm::simulate(options.ranks, simulation, [&](comm::SimulatedRank& rank) {
    call(rank, options.kind, options.algorithm, recording.root, count,
         std::int64_t{1} << (kBits * rank.rank));
  });
  recording.steps = steps_of(runs);
  for (OwnRun& run : runs) recording.out.push_back(std::move(run.out));
  recording.want = wanted(options, chunks);
  if (pairs) keep_places_of_out(recording);
  return recording;
}

std::vector<std::size_t> Recording::sent() const { return moved_bytes(*this, false); }

std::vector<std::size_t> Recording::read() const { return moved_bytes(*this, true); }

std::vector<std::string> Recording::faults() const {
  std::vector<std::string> found;
  for (std::size_t rank = 0; rank < want.size(); ++rank) {
    for (std::size_t chunk = 0; chunk < want[rank].size(); ++chunk) {
      if (want[rank][chunk].empty() || want[rank][chunk] == out[rank][chunk]) continue;
      found.push_back("rank " + std::to_string(rank) + " ends with " + text_of(out[rank][chunk]) +
                      " in chunk " + std::to_string(chunk) + ", must be " +
                      text_of(want[rank][chunk]));
    }
  }
  return found;
}

std::string text_of(const Parts& parts) {
  std::vector<std::string> terms;
  for (const auto& [first, last] : runs_of(parts)) {
    const bool is_long = last - first >= 4;  // 0+1+2+3 is not abbreviated
    if (is_long) terms.push_back(std::to_string(first) + "+..+" + std::to_string(last));
    for (int rank = first; !is_long && rank <= last; ++rank) terms.push_back(std::to_string(rank));
  }
  return terms.empty() ? "nothing" : joined(terms, {}, "+");
}

std::string text_of(const Cell& cell) {
  return joined(cell, [](const Parts& parts) { return text_of(parts); });
}

}  // namespace trireme::inline v0::show
