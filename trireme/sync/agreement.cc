#include "trireme/sync/agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <map>
#include <type_traits>

#include "trireme/base/shortened.h"
#include "trireme/base/words.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {
namespace {

// One record per rank. Must live until gather()'s Work is done; then all ranks have all records.
template <class Record>
struct Gathered {
  explicit Gathered(int size) : all(static_cast<std::size_t>(size)) {}
  Work gather(comm::Communicator& world, const comm::OpOptions& options) {
    return world.all_gather(words_of(&mine, 1), words_of(all.data(), all.size()), options);
  }
  static Buffer words_of(Record* records, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<Record>);
    static_assert(sizeof(Record) % sizeof(std::int64_t) == 0);
    return {.data = records,
            .count = count * sizeof(Record) / sizeof(std::int64_t),
            .dtype = DType::I64};
  }
  Record mine{};
  std::vector<Record> all;
};

constexpr std::int64_t kEnded = -1;

struct Entry {
  std::int64_t leaving = 0;  // kEnded, or the exit code of a rank that failed
  std::int64_t batch = 0, total = 0;
  friend auto operator<=>(const Entry&, const Entry&) = default;
};
using Entries = Gathered<Entry>;

std::shared_ptr<Entries> entries_with(const comm::Communicator& world, const BarrierEntry& entry) {
  auto entries = std::make_shared<Entries>(world.size());
  const auto leaving = static_cast<std::int64_t>(entry.leaving.value_or(ExitCode::Done));
  entries->mine = {entry.leaving && leaving == 0 ? kEnded : leaving, entry.batch, entry.total};
  return entries;
}

Work gather(comm::Communicator& world, const std::shared_ptr<Entries>& entries,
            std::optional<ExitCode> leaving) {
  return entries->gather(world, {.label = "entry barrier", .leaving = leaving});
}

// The first rank that is leaving, else the first that differs from the majority; -1 if none.
int odd_rank(const std::vector<Entry>& all) {
  std::map<Entry, int> votes;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].leaving != 0) return static_cast<int>(rank);
    ++votes[all[rank]];
  }
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto odd = std::find_if(all.begin(), all.end(),
                                [&](const Entry& entry) { return entry != most->first; });
  return odd == all.end() ? -1 : static_cast<int>(odd - all.begin());
}

[[noreturn]] void refuse_entry(int odd, const Entry& theirs, const Entry& ours, int rank,
                               const std::string& host) {
  std::string message = "rank " + std::to_string(odd);
  ErrorContext context{.rank = rank,
                       .host = host,
                       .operation = "step",
                       .peer = odd,
                       .step = static_cast<long>(ours.batch),
                       .advice =
                           "Give every rank the same number of batches; "
                           "trireme::Sampler does."};
  if (theirs.leaving > 0) {
    context.advice = "See that rank's own last lines.";
    throw_error(static_cast<ExitCode>(theirs.leaving), message + " gave up", std::move(context));
  }
  if (theirs.leaving == kEnded) {
    message += "'s loop ended before global batch " + std::to_string(ours.batch) +
               ", which this rank is in";
  } else {
    message += " is in global batch " + std::to_string(theirs.batch) + " of " +
               std::to_string(theirs.total) + " micro-batches, this rank in " +
               std::to_string(ours.batch) + " of " + std::to_string(ours.total);
  }
  throw UnevenInput(message, std::move(context));
}

}  // namespace

Work enter_barrier(comm::Communicator& world, const BarrierEntry& entry, const std::string& host) {
  auto entries = entries_with(world, entry);
  return gather(world, entries, entry.leaving).then([&world, entries, host] {
    const std::vector<Entry>& all = entries->all;
    const int odd = odd_rank(all);
    if (odd < 0) return;
    // If this rank is the odd one, the error names a rank that differs from it.
    const Entry& ours = all[static_cast<std::size_t>(world.rank())];
    int named = odd;
    for (int rank = 0; named == world.rank() && rank < world.size(); ++rank)
      if (all[static_cast<std::size_t>(rank)] != ours) named = rank;
    try {
      refuse_entry(named, all[static_cast<std::size_t>(named)], ours, world.rank(), host);
    } catch (...) {
      world.abort(std::current_exception());
      throw;
    }
  });
}

void leave(comm::Communicator& world) noexcept {
  try {
    if (world.size() == 1 || world.failure()) return;
    const auto entries = entries_with(world, {.leaving = ExitCode::Done});
    gather(world, entries, ExitCode::Done).then([entries] {}).wait();
  } catch (...) {
    // The other ranks get what was sent, or are gone.
  }
}

// Ranks that map each other's memory read there that this rank gave up, and why. Other ranks learn
// that, and the exit code, from this rank's last call.
void give_up(comm::Communicator& world, const std::set<comm::Communicator*>& groups,
             const std::exception_ptr& error) noexcept {
  if (world.size() == 1 || world.failure()) return;  // there are no others, or they know
  const auto code = static_cast<ExitCode>(describe(error).exit_code);
  try {
    for (comm::Communicator* group : groups)
      if (group != nullptr && group->size() > 1 && !group->can_map()) {
        const auto entries = entries_with(*group, {.leaving = code});
        gather(*group, entries, code).on_settled([entries](const std::exception_ptr&) {});
      }
  } catch (...) {
  }
  world.abort(error);
}

namespace {

// A text in a record.
template <std::size_t kBytes>
struct TextField {
  std::int64_t size = 0;
  std::array<char, kBytes> bytes{};
  void write(const std::string& text) {
    constexpr std::size_t kEllipsis = 24;  // and the length of the text
    const std::string sent = text.size() > kBytes ? shortened(text, kBytes - kEllipsis) : text;
    size = static_cast<std::int64_t>(sent.size());
    std::copy(sent.begin(), sent.end(), bytes.begin());
  }
  std::string read() const {
    return {bytes.data(), static_cast<std::size_t>(std::clamp<std::int64_t>(size, 0, kBytes))};
  }
};

enum Outcome : std::int64_t { kRefused, kOk, kOverflow };
enum Flag : std::int64_t { kHasGradient = 1, kHasMeans = 2, kHasSums = 4 };
constexpr int kFlagBits = 3;

struct VoteRecord {
  Outcome outcome = kRefused;
  std::int64_t exit_code = 0, stop_signal = 0, count = 0;
  double squares = 0;
  std::int64_t busy = 0, passes = 0, micro_batches = 0;  // times in ns
  std::int64_t flags_and_rates = 0;  // bits 0 to 2: Flag, the others: hash_of(rates)
  double first_rate = 0;
  TextField<184> reason;
  TextField<120> advice;
  bool has(Flag flag) const { return (flags_and_rates & flag) != 0; }
  std::int64_t rates() const { return flags_and_rates >> kFlagBits; }
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

// An exception's sentence ends with its advice, which a vote carries separately.
void LocalVote::refuse(const ErrorReport& report) {
  std::string why = report.sentence;
  const std::string& own = report.context.advice;
  if (!own.empty() && why.ends_with(own)) why.resize(why.size() - own.size());
  while (!why.empty() && (why.back() == ' ' || why.back() == '.')) why.pop_back();
  refuse(report.exit_code, why, own);
}

struct Vote::State : Gathered<VoteRecord> {
  using Gathered::Gathered;
};

Vote::Vote(comm::Communicator& world, const LocalVote& local_vote)
    : state_(std::make_shared<State>(world.size())) {
  VoteRecord& mine = state_->mine;
  mine.outcome = !local_vote.ok ? kRefused : local_vote.overflow ? kOverflow : kOk;
  mine.exit_code = local_vote.exit_code;
  mine.stop_signal = local_vote.stop_signal;
  mine.count = local_vote.count;
  mine.squares = local_vote.squares;
  mine.busy = local_vote.time.busy.count();
  mine.passes = local_vote.time.passes.count();
  mine.micro_batches = local_vote.time.micro_batches;
  mine.flags_and_rates = hash_of(local_vote.rates) << kFlagBits;
  if (local_vote.trains) mine.flags_and_rates |= kHasGradient;
  if (local_vote.means) mine.flags_and_rates |= kHasMeans;
  if (local_vote.sums) mine.flags_and_rates |= kHasSums;
  if (!local_vote.rates.empty()) mine.first_rate = local_vote.rates.front();
  mine.reason.write(local_vote.reason);
  mine.advice.write(local_vote.advice);
  work_ = state_->gather(world, {.label = "vote"}).then([state = state_] {});
}

Verdict Vote::result() const {
  work_.wait();
  Verdict verdict;
  for (int rank = 0; rank < static_cast<int>(state_->all.size()); ++rank) {
    const VoteRecord& record = state_->all[static_cast<std::size_t>(rank)];
    if (verdict.stop_signal == 0) verdict.stop_signal = static_cast<int>(record.stop_signal);
    verdict.count += record.count;
    verdict.squares += record.squares;
    verdict.times.push_back({Duration(record.busy), Duration(record.passes),
                             static_cast<std::uint32_t>(record.micro_batches)});
    verdict.trains |= record.has(kHasGradient);
    const bool refused = record.outcome == kRefused, overflow = record.outcome == kOverflow;
    // A refusal takes precedence over an overflow, even one of a lower rank.
    if (!verdict.ok || (!refused && (!overflow || verdict.overflow))) continue;
    verdict.ok = !refused;
    verdict.overflow = overflow;
    verdict.refusing_rank = rank;
    verdict.exit_code = static_cast<int>(record.exit_code);
    verdict.reason = record.reason.read();
    verdict.advice = record.advice.read();
  }
  compare_rates(verdict);
  compare_losses(verdict);
  return verdict;
}

void Vote::compare_rates(Verdict& verdict) const {
  const std::vector<VoteRecord>& all = state_->all;
  const auto first =
      std::find_if(all.begin(), all.end(), [](const VoteRecord& one) { return one.rates() != 0; });
  const auto other = std::find_if(first, all.end(), [&](const VoteRecord& one) {
    return one.rates() != 0 && one.rates() != first->rates();
  });
  if (!verdict.ok || other == all.end()) return;
  const std::string of_rank = "rank " + std::to_string(first - all.begin());
  verdict.ok = false;
  verdict.refusing_rank = static_cast<int>(other - all.begin());
  verdict.exit_code = static_cast<int>(ExitCode::UserCode);
  verdict.reason = other->first_rate != first->first_rate
                       ? "its learning rate is " + number_text(other->first_rate) + ", that of " +
                             of_rank + " is " + number_text(first->first_rate)
                       : "its learning rates of parameter groups other than the first differ "
                         "from those of " +
                             of_rank;
  verdict.advice =
      "Set it alike on all ranks, by the number of steps done and not of calls of step()";
}

// A mean is weighted by samples and a sum by its items, so gradients of both do not add up.
void Vote::compare_losses(Verdict& verdict) const {
  const std::vector<VoteRecord>& all = state_->all;
  const auto first_with = [&](Flag flag) {
    return std::find_if(all.begin(), all.end(),
                        [flag](const VoteRecord& one) { return one.has(flag); });
  };
  const auto mean = first_with(kHasMeans), sum = first_with(kHasSums);
  if (!verdict.ok || mean == all.end() || sum == all.end()) return;
  verdict.ok = false;
  verdict.refusing_rank = static_cast<int>(sum - all.begin());
  verdict.exit_code = static_cast<int>(ExitCode::UserCode);
  verdict.reason = sum == mean
                       ? "its loss is a mean in one micro-batch of the batch and a sum in another"
                       : "its loss is a sum over items, that of rank " +
                             std::to_string(mean - all.begin()) + " a mean over samples";
  verdict.advice =
      "Call backward(mean) in every micro-batch of every rank, or backward(sum, count) in every "
      "one";
}

void throw_if_refused(const Verdict& verdict, int rank, const std::string& host, long step) {
  if (verdict.ok) return;
  std::string advice = "Nothing was applied on any rank";
  if (!verdict.advice.empty()) {
    const std::string& own = verdict.advice;
    // The advice is a full sentence, or continues this one.
    const bool sentence = std::isupper(static_cast<unsigned char>(own.front())) != 0;
    advice += (sentence ? ". " : "; ") + own;
  }
  if (advice.back() != '.') advice += '.';
  throw StepRefused(
      static_cast<ExitCode>(verdict.exit_code),
      "rank " + std::to_string(verdict.refusing_rank) + " refused the step: " + verdict.reason,
      {.rank = rank,
       .host = host,
       .operation = "step",
       .peer = verdict.refusing_rank,
       .step = step,
       .advice = advice});
}

void refuse_overflow(StepSync& sync, const std::function<std::string(std::size_t)>& name_of,
                     int rank, const std::string& host, long step) {
  const std::int64_t parameter = sync.first_overflow();
  if (parameter < 0) return;
  throw StepRefused(static_cast<ExitCode>(Refusal::kNotFinite),
                    "the gradient of " + name_of(static_cast<std::size_t>(parameter)) +
                        " is finite on every rank, but its sum over the micro-batches is not",
                    {.rank = rank,
                     .host = host,
                     .operation = "step",
                     .step = step,
                     .advice = "Nothing was applied on any rank; lower the learning rate. If "
                               "comm.compression is f16, whose largest number is 65504, use "
                               "bf16: it is the gradient of the summed loss that is sent."});
}

}  // namespace trireme::inline v0::parallel
