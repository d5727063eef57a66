#include "trireme/parallel/agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace parallel {
namespace {

// Records cross as int64 words: [leaving, batch, total].
constexpr std::size_t kGateWords = 3;

struct GateState {
  std::array<std::int64_t, kGateWords> mine{};
  std::vector<std::int64_t> all;
};

std::shared_ptr<GateState> gate_state(const comm::Communicator& world, const GateEntry& entry) {
  auto state = std::make_shared<GateState>();
  state->mine = {entry.leaving ? 1 : 0, entry.batch, entry.total};
  state->all.resize(kGateWords * static_cast<std::size_t>(world.size()));
  return state;
}

Work gather(comm::Communicator& world, const std::shared_ptr<GateState>& state) {
  return world.all_gather(Buffer::of(std::span<std::int64_t>(state->mine)),
                          Buffer::of(std::span(state->all)),
                          {.label = "step gate", .leaving = state->mine[0] != 0});
}

using Record = std::array<std::int64_t, kGateWords>;
Record record_of(const GateState& state, int rank) {
  Record record;
  std::copy_n(state.all.begin() + static_cast<std::ptrdiff_t>(kGateWords) * rank, kGateWords,
              record.begin());
  return record;
}

// The first rank that is leaving, else the first that differs from what most ranks say; -1 if none.
int odd_rank(const GateState& state, int size) {
  std::map<Record, int> votes;
  for (int rank = 0; rank < size; ++rank) {
    if (record_of(state, rank)[0] != 0) return rank;
    ++votes[record_of(state, rank)];
  }
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (int rank = 0; rank < size; ++rank)
    if (record_of(state, rank) != most->first) return rank;
  return -1;
}

UnevenInput uneven(int odd, const Record& theirs, const Record& ours, int rank,
                   const std::string& host) {
  std::string message = "rank " + std::to_string(odd);
  if (theirs[0] != 0) {
    message +=
        "'s loop ended before global batch " + std::to_string(ours[1]) + ", which this rank is in";
  } else {
    message += " is in global batch " + std::to_string(theirs[1]) + " of " +
               std::to_string(theirs[2]) + " micro-batches, this rank in " +
               std::to_string(ours[1]) + " of " + std::to_string(ours[2]);
  }
  return UnevenInput(message, {.rank = rank,
                               .host = host,
                               .operation = "step",
                               .peer = odd,
                               .step = static_cast<long>(ours[1]),
                               .advice = "Give every rank the same number of batches; "
                                         "trireme::Sampler does."});
}

}  // namespace

Work enter_gate(comm::Communicator& world, const GateEntry& entry, const std::string& host) {
  auto state = gate_state(world, entry);
  return gather(world, state).then([&world, state, host] {
    const int odd = odd_rank(*state, world.size());
    if (odd < 0) return;
    // Where it is this rank that differs from the others, it names one of them.
    const Record ours = record_of(*state, world.rank());
    int named = odd;
    for (int rank = 0; named == world.rank() && rank < world.size(); ++rank)
      if (record_of(*state, rank) != ours) named = rank;
    const auto error =
        std::make_exception_ptr(uneven(named, record_of(*state, named), ours, world.rank(), host));
    world.abort(error);
    std::rethrow_exception(error);
  });
}

void leave(comm::Communicator& world) noexcept {
  try {
    if (world.size() == 1 || world.failure()) return;
    auto state = gate_state(world, {.leaving = true});
    gather(world, state).then([state] {}).wait();
  } catch (...) {
    // The others know already, or are gone: nothing is left to tell.
  }
}

// Where ranks see one another's memory they read there that this one gave up, and why. Others learn
// it from a call that this rank makes last.
void give_up(comm::Communicator& world, std::span<comm::Communicator* const> groups,
             const std::exception_ptr& error) noexcept {
  if (world.failure()) return;  // the others know
  try {
    for (comm::Communicator* group : groups)
      if (group != nullptr && group->size() > 1 && !group->can_map()) {
        const auto state = gate_state(*group, {.leaving = true});
        gather(*group, state).on_settled([state](const std::exception_ptr&) {});
      }
  } catch (...) {
  }
  world.abort(error);
}

// [ok (2: overflow), exit code, stop signal, count, length of the reason, squares and loss as bits,
// reason]
struct Vote::State {
  static constexpr std::size_t kHead = 7, kText = 184;
  static constexpr std::size_t kWords = kHead + kText / 8;
  std::array<std::int64_t, kWords> mine{};
  std::vector<std::int64_t> all;
  int size = 1;
};

Vote::Vote(comm::Communicator& world, const Ballot& ballot) : state_(std::make_shared<State>()) {
  state_->size = world.size();
  state_->all.resize(State::kWords * static_cast<std::size_t>(world.size()));
  const std::size_t length = std::min(ballot.reason.size(), State::kText);
  state_->mine[0] = !ballot.ok ? 0 : ballot.overflow ? 2 : 1;
  state_->mine[1] = ballot.exit_code;
  state_->mine[2] = ballot.stop_signal;
  state_->mine[3] = ballot.count;
  state_->mine[4] = static_cast<std::int64_t>(length);
  state_->mine[5] = std::bit_cast<std::int64_t>(ballot.squares);
  state_->mine[6] = std::bit_cast<std::int64_t>(ballot.loss);
  std::memcpy(&state_->mine[State::kHead], ballot.reason.data(), length);
  work_ = world
              .all_gather(Buffer::of(std::span<std::int64_t>(state_->mine)),
                          Buffer::of(std::span(state_->all)), {.label = "vote"})
              .then([state = state_] {});
}

Verdict Vote::result() const {
  work_.wait();
  Verdict verdict;
  for (int rank = 0; rank < state_->size; ++rank) {
    const std::int64_t* record =
        state_->all.data() + State::kWords * static_cast<std::size_t>(rank);
    if (verdict.stop_signal == 0) verdict.stop_signal = static_cast<int>(record[2]);
    verdict.count += record[3];
    verdict.squares += std::bit_cast<double>(record[5]);
    verdict.loss += std::bit_cast<double>(record[6]);
    const bool refused = record[0] == 0, overflow = record[0] == 2;
    // A refusal counts before an overflow, whichever ranks they come from.
    if (!verdict.ok || (!refused && (!overflow || verdict.overflow))) continue;
    verdict.ok = !refused;
    verdict.overflow = overflow;
    verdict.refusing_rank = rank;
    verdict.exit_code = static_cast<int>(record[1]);
    const auto length = std::clamp<std::int64_t>(record[4], 0, State::kText);
    verdict.reason.assign(reinterpret_cast<const char*>(record + State::kHead),
                          static_cast<std::size_t>(length));
  }
  return verdict;
}

void throw_if_refused(const Verdict& verdict, const comm::Communicator& world,
                      const std::string& host, long step) {
  if (verdict.ok) return;
  throw StepRefused(
      static_cast<ExitCode>(verdict.exit_code),
      "rank " + std::to_string(verdict.refusing_rank) + " refused the step: " + verdict.reason,
      {.rank = world.rank(),
       .host = host,
       .operation = "step",
       .peer = verdict.refusing_rank,
       .step = step,
       .advice = "Nothing was applied on any rank; lower the learning rate or look at "
                 "that rank's data."});
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
