#include "trireme/sync/agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shortened.h"
#include "trireme/base/words.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {
namespace {

// Records are sent as int64 words: [0, kEnded or the exit code of a rank that failed; batch; total].
constexpr std::size_t kBarrierWords = 3;
constexpr std::int64_t kEnded = -1;

struct BarrierState {
  std::array<std::int64_t, kBarrierWords> mine{};
  std::vector<std::int64_t> all;
};

std::shared_ptr<BarrierState> gate_state(const comm::Communicator& world,
                                         const BarrierEntry& entry) {
  auto state = std::make_shared<BarrierState>();
  const auto leaving = static_cast<std::int64_t>(entry.leaving.value_or(ExitCode::Done));
  state->mine = {entry.leaving && leaving == 0 ? kEnded : leaving, entry.batch, entry.total};
  state->all.resize(kBarrierWords * static_cast<std::size_t>(world.size()));
  return state;
}

Work gather(comm::Communicator& world, const std::shared_ptr<BarrierState>& state,
            std::optional<ExitCode> leaving) {
  return world.all_gather(Buffer::of(std::span<std::int64_t>(state->mine)),
                          Buffer::of(std::span(state->all)),
                          {.label = "entry barrier", .leaving = leaving});
}

using Record = std::array<std::int64_t, kBarrierWords>;
Record record_of(const BarrierState& state, int rank) {
  Record record;
  std::copy_n(state.all.begin() + static_cast<std::ptrdiff_t>(kBarrierWords) * rank, kBarrierWords,
              record.begin());
  return record;
}

// The first rank that is leaving, else the first that differs from the majority; -1 if none.
int odd_rank(const BarrierState& state, int size) {
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

[[noreturn]] void refuse_entry(int odd, const Record& theirs, const Record& ours, int rank,
                               const std::string& host) {
  std::string message = "rank " + std::to_string(odd);
  ErrorContext context{.rank = rank,
                       .host = host,
                       .operation = "step",
                       .peer = odd,
                       .step = static_cast<long>(ours[1]),
                       .advice =
                           "Give every rank the same number of batches; "
                           "trireme::Sampler does."};
  if (theirs[0] > 0) {
    context.advice = "See that rank's own last lines.";
    throw_error(static_cast<ExitCode>(theirs[0]), message + " gave up", std::move(context));
  }
  if (theirs[0] == kEnded) {
    message +=
        "'s loop ended before global batch " + std::to_string(ours[1]) + ", which this rank is in";
  } else {
    message += " is in global batch " + std::to_string(theirs[1]) + " of " +
               std::to_string(theirs[2]) + " micro-batches, this rank in " +
               std::to_string(ours[1]) + " of " + std::to_string(ours[2]);
  }
  throw UnevenInput(message, std::move(context));
}

}  // namespace

Work enter_barrier(comm::Communicator& world, const BarrierEntry& entry, const std::string& host) {
  auto state = gate_state(world, entry);
  return gather(world, state, entry.leaving).then([&world, state, host] {
    const int odd = odd_rank(*state, world.size());
    if (odd < 0) return;
    // If this rank is the odd one, the error names a rank that differs from it.
    const Record ours = record_of(*state, world.rank());
    int named = odd;
    for (int rank = 0; named == world.rank() && rank < world.size(); ++rank)
      if (record_of(*state, rank) != ours) named = rank;
    try {
      refuse_entry(named, record_of(*state, named), ours, world.rank(), host);
    } catch (...) {
      world.abort(std::current_exception());
      throw;
    }
  });
}

void leave(comm::Communicator& world) noexcept {
  try {
    if (world.size() == 1 || world.failure()) return;
    auto state = gate_state(world, {.leaving = ExitCode::Done});
    gather(world, state, ExitCode::Done).then([state] {}).wait();
  } catch (...) {
    // The other ranks already know, or are gone.
  }
}

// Ranks that can map each other's memory read there that this rank gave up, and why. The others
// learn it, and the exit code, from this rank's last call.
void give_up(comm::Communicator& world, std::span<comm::Communicator* const> groups,
             const std::exception_ptr& error) noexcept {
  if (world.failure()) return;  // the others know
  const auto code = static_cast<ExitCode>(describe(error).exit_code);
  try {
    for (comm::Communicator* group : groups)
      if (group != nullptr && group->size() > 1 && !group->can_map()) {
        const auto state = gate_state(*group, {.leaving = code});
        gather(*group, state, code).on_settled([state](const std::exception_ptr&) {});
      }
  } catch (...) {
  }
  world.abort(error);
}

namespace {

// A text inside a record of int64 words: its length, then its bytes.
template <std::size_t kBytes>
struct TextField {
  static constexpr std::size_t kWords = 1 + kBytes / 8;
  static void write(std::int64_t* words, const std::string& text) {
    constexpr std::size_t kEllipsis = 24;  // and the length of the text
    const std::string sent = text.size() > kBytes ? shortened(text, kBytes - kEllipsis) : text;
    words[0] = static_cast<std::int64_t>(sent.size());
    std::memcpy(words + 1, sent.data(), sent.size());
  }
  static std::string read(const std::int64_t* words) {
    const auto length = std::clamp<std::int64_t>(words[0], 0, kBytes);
    return {reinterpret_cast<const char*>(words + 1), static_cast<std::size_t>(length)};
  }
};

// A hash of the rates' bits; 0 if there are none.
std::int64_t hash_of(const std::vector<double>& rates) {
  std::uint64_t hash = rates.size();
  for (const double rate : rates)
    hash = std::rotl((hash ^ std::bit_cast<std::uint64_t>(rate)) * 0x9e3779b97f4a7c15u, 31);
  return static_cast<std::int64_t>(hash);
}

}  // namespace

// For a misused gradient, the reason itself says what to do.
void LocalVote::refuse(const Refusal& refusal) {
  const bool diverged = refusal.exit_code == Refusal::kNotFinite;
  refuse(refusal.exit_code, refusal.reason, diverged ? kNotFiniteAdvice : "");
}

void LocalVote::check_loss(std::uint32_t microbatch, double loss) {
  if (std::isfinite(loss)) return;
  refuse(Refusal::kNotFinite,
         "the loss of micro-batch " + std::to_string(microbatch) + " is " + number_text(loss),
         kNotFiniteAdvice);
}

void LocalVote::take_rates(std::vector<double> own, bool compared) {
  for (const double rate : own)
    if (!std::isfinite(rate))
      refuse(static_cast<int>(ExitCode::UserCode), "its learning rate is " + number_text(rate),
             "Correct the schedule of the learning rate");
  if (compared) rates = std::move(own);
}

// An exception's sentence ends with its advice, which the local_vote carries separately.
void LocalVote::refuse(const ErrorReport& report) {
  std::string why = report.sentence;
  const std::string& own = report.context.advice;
  if (!own.empty() && why.ends_with(own)) why.resize(why.size() - own.size());
  while (!why.empty() && (why.back() == ' ' || why.back() == '.')) why.pop_back();
  refuse(report.exit_code, why, own);
}

// [0 refused, 1 ok or 2 overflow; exit code; stop signal; count; bits of squares; busy, passes (ns)
// and micro-batches; bit 0: trains, the others: hash_of(rates); bits of the first rate; reason; advice]
struct Vote::State {
  using Reason = TextField<184>;
  using Advice = TextField<120>;
  static constexpr std::size_t kTrains = 8, kRate = 9;
  static constexpr std::size_t kReason = 10, kAdvice = kReason + Reason::kWords;
  static constexpr std::size_t kWords = kAdvice + Advice::kWords;
  std::array<std::int64_t, kWords> mine{};
  std::vector<std::int64_t> all;
  int size = 1;
};

Vote::Vote(comm::Communicator& world, const LocalVote& local_vote)
    : state_(std::make_shared<State>()) {
  state_->size = world.size();
  state_->all.resize(State::kWords * static_cast<std::size_t>(world.size()));
  state_->mine[0] = !local_vote.ok ? 0 : local_vote.overflow ? 2 : 1;
  state_->mine[1] = local_vote.exit_code;
  state_->mine[2] = local_vote.stop_signal;
  state_->mine[3] = local_vote.count;
  state_->mine[4] = std::bit_cast<std::int64_t>(local_vote.squares);
  state_->mine[5] = local_vote.time.busy.count();
  state_->mine[6] = local_vote.time.passes.count();
  state_->mine[7] = local_vote.time.micro_batches;
  state_->mine[State::kTrains] = hash_of(local_vote.rates) << 1 | (local_vote.trains ? 1 : 0);
  if (!local_vote.rates.empty())
    state_->mine[State::kRate] = std::bit_cast<std::int64_t>(local_vote.rates.front());
  State::Reason::write(&state_->mine[State::kReason], local_vote.reason);
  State::Advice::write(&state_->mine[State::kAdvice], local_vote.advice);
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
    verdict.squares += std::bit_cast<double>(record[4]);
    verdict.times.push_back(
        {Duration(record[5]), Duration(record[6]), static_cast<std::uint32_t>(record[7])});
    verdict.trains |= (record[State::kTrains] & 1) != 0;
    const bool refused = record[0] == 0, overflow = record[0] == 2;
    // A refusal takes precedence over an overflow, even one of a lower rank.
    if (!verdict.ok || (!refused && (!overflow || verdict.overflow))) continue;
    verdict.ok = !refused;
    verdict.overflow = overflow;
    verdict.refusing_rank = rank;
    verdict.exit_code = static_cast<int>(record[1]);
    verdict.reason = State::Reason::read(record + State::kReason);
    verdict.advice = State::Advice::read(record + State::kAdvice);
  }
  compare_rates(verdict);
  return verdict;
}

void Vote::compare_rates(Verdict& verdict) const {
  const auto word = [this](int rank, std::size_t at) {
    return state_->all[State::kWords * static_cast<std::size_t>(rank) + at];
  };
  int first = -1;
  for (int rank = 0; rank < state_->size && verdict.ok; ++rank) {
    const std::int64_t rates = word(rank, State::kTrains) >> 1;
    if (rates == 0) continue;
    if (first < 0) first = rank;
    if (rates == word(first, State::kTrains) >> 1) continue;
    const auto rate = std::bit_cast<double>(word(rank, State::kRate));
    const auto other = std::bit_cast<double>(word(first, State::kRate));
    const std::string of_rank = "rank " + std::to_string(first);
    verdict.ok = false;
    verdict.refusing_rank = rank;
    verdict.exit_code = static_cast<int>(ExitCode::UserCode);
    verdict.reason = rate != other
                         ? "its learning rate is " + number_text(rate) + ", that of " + of_rank +
                               " is " + number_text(other)
                         : "its learning rates of parameter groups other than the first differ "
                           "from those of " +
                               of_rank;
    verdict.advice =
        "Set it alike on all ranks, by the number of steps done and not of calls of step()";
  }
}

void throw_if_refused(const Verdict& verdict, const comm::Communicator& world,
                      const std::string& host, long step) {
  if (verdict.ok) return;
  std::string advice = "Nothing was applied on any rank";
  if (!verdict.advice.empty()) {
    const std::string& own = verdict.advice;
    // The advice is a sentence of its own, or continues this one.
    const bool sentence = std::isupper(static_cast<unsigned char>(own.front())) != 0;
    advice += (sentence ? ". " : "; ") + own;
  }
  if (advice.back() != '.') advice += '.';
  throw StepRefused(
      static_cast<ExitCode>(verdict.exit_code),
      "rank " + std::to_string(verdict.refusing_rank) + " refused the step: " + verdict.reason,
      {.rank = world.rank(),
       .host = host,
       .operation = "step",
       .peer = verdict.refusing_rank,
       .step = step,
       .advice = advice});
}

}  // namespace trireme::inline v0::parallel
