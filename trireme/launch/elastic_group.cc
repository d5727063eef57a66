#include "trireme/launch/elastic_group.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::launch {
namespace {

constexpr Duration kWindow = std::chrono::hours(1);

void check(const ElasticOptions& options, int ranks) {
  const auto refuse = [](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.operation = "launch", .label = "elastic", .advice = advice});
  };
  if (options.min < 1 || options.max < options.min)
    refuse("elastic from " + std::to_string(options.min) + " to " + std::to_string(options.max) +
               " ranks",
           "Write the smaller number first, at least 1: --elastic 2:8.");
  if (ranks < options.min || ranks > options.max)
    refuse("the job starts with " + counted(ranks, "rank") + ", and elastic allows " +
               std::to_string(options.min) + " to " + std::to_string(options.max),
           "Start with a number of --ranks in between.");
  for (const int number : {options.min, ranks, options.max})
    if (options.multiple < 1 || options.stages < 1 || options.multiple % options.stages != 0 ||
        number % options.multiple != 0)
      refuse("elastic with " + counted(number, "rank") + ", and " +
                 std::to_string(options.multiple) + " share one copy of the model",
             "Give multiples of " + std::to_string(options.multiple) + ".");
  if (options.spares < 0 || options.restarts < 0)
    refuse("a negative number of spares or restarts", "Use 0 for none.");
}

}  // namespace

ElasticGroup::ElasticGroup(const ElasticOptions& options, int ranks)
    : options_(options), wanted_(ranks) {
  check(options, ranks);
  states_.assign(static_cast<std::size_t>(options.max + options.spares), State::Free);
  delays_.resize(states_.size());
  for (const int process : first_processes())
    states_[process] = process < ranks ? State::Rank : State::Starting;
  last_ranks_ = epoch_.members = in(State::Rank);
}

ElasticGroup::ElasticGroup(const ElasticOptions& options, rendezvous::Epoch epoch,
                           const std::vector<int>& joined)
    : options_(options),
      wanted_(options.max),
      epoch_(std::move(epoch)),
      last_ranks_(epoch_.members) {
  check(options, options.max);
  states_.assign(static_cast<std::size_t>(options.max + options.spares), State::Starting);
  delays_.resize(states_.size());
  for (const int process : joined) state_of(process) = State::Waiting;
  for (const int process : epoch_.members) state_of(process) = State::Rank;
}

ElasticGroup::State& ElasticGroup::state_of(int process) {
  TRIREME_CHECK(process >= 0);
  TRIREME_CHECK(process < static_cast<int>(states_.size()));
  return states_[process];
}

std::vector<int> ElasticGroup::first_processes() const {
  std::vector<int> all;
  for (int process = 0; process < wanted_ + options_.spares; ++process) all.push_back(process);
  return all;
}

std::vector<int> ElasticGroup::in(State state) const {
  std::vector<int> all;
  for (std::size_t process = 0; process < states_.size(); ++process)
    if (states_[process] == state) all.push_back(static_cast<int>(process));
  return all;
}

void ElasticGroup::fill_places() {
  for (const int process : in(State::Waiting))
    if (count(State::Rank) < wanted_) states_[process] = State::Rank;
  for (;;) {
    const std::vector<int> all = in(State::Rank);
    const auto size = static_cast<int>(all.size());
    if (size <= wanted_ && size % options_.multiple == 0) return;
    states_[least_needed(all)] = State::Waiting;
  }
}

std::optional<int> ElasticGroup::part_of(int process) const {
  const auto at = std::find(last_ranks_.begin(), last_ranks_.end(), process);
  if (at == last_ranks_.end()) return std::nullopt;
  const auto rank = static_cast<int>(at - last_ranks_.begin());
  const int ranks_of_a_stage = static_cast<int>(last_ranks_.size()) / options_.stages;
  const int inner = options_.multiple / options_.stages;
  return rank / ranks_of_a_stage * inner + rank % inner;
}

// The last rank that has no state, or whose part of the model another rank has, too.
int ElasticGroup::least_needed(const std::vector<int>& ranks) const {
  for (auto one = ranks.rbegin(); one != ranks.rend(); ++one) {
    const std::optional<int> part = part_of(*one);
    const auto has_it = [&](int other) { return other != *one && part_of(other) == part; };
    if (!part || std::any_of(ranks.begin(), ranks.end(), has_it)) return *one;
  }
  return ranks.back();
}

rendezvous::Epoch ElasticGroup::next_epoch(bool at_step_end, const std::string& cause) {
  if (!at_step_end) leaving_.clear();
  for (const int process : epoch_.members)
    if (at_step_end && states_[process] != State::Rank) leaving_.push_back(process);
  const std::uint32_t number = epoch_.number + 1;
  epoch_ = {.number = number,
            .members = in(State::Rank),
            .at_step_end = at_step_end,
            .interrupted = at_step_end ? epoch_.interrupted : number,
            .cause = cause};
  last_ranks_ = epoch_.members;
  return epoch_;
}

std::string ElasticGroup::number_of_ranks() const {
  return counted(static_cast<int>(epoch_.members.size()), "rank");
}

bool ElasticGroup::may_restart(TimePoint now) {
  while (!restarts_.empty() && now - restarts_.front() > kWindow) restarts_.pop_front();
  if (static_cast<int>(restarts_.size()) >= options_.restarts) return false;
  restarts_.push_back(now);
  return true;
}

void ElasticGroup::not_started() {
  if (!restarts_.empty()) restarts_.pop_back();
}

ElasticGroup::Decision ElasticGroup::lost(int process, const std::string& how, bool again,
                                          TimePoint now) {
  Decision decision;
  State& state = state_of(process);
  const bool was_rank = state == State::Rank;
  state = State::Free;
  if (again && may_restart(now)) {
    decision.starts.push_back({process, delays_[process].next(now, options_.pace)});
    state = State::Starting;
  }
  std::string next =
      decision.starts.empty()
          ? (again && options_.restarts > 0 ? " after " + counted(options_.restarts, "restart") +
                                                  " within an hour it is not started again"
                                            : " it is not started again")
          : "";
  // The others may need the leaving process to finish their step.
  if (!was_rank && !is_leaving(process)) {
    decision.line =
        how + "; it had no place in the job" + (next.empty() ? "." : ", and" + next + ".");
    decision.give_up = count(State::Rank) < options_.min && count(State::Starting) == 0;
    return decision;
  }
  fill_places();
  const int left = count(State::Rank);
  if (left >= options_.min) {
    decision.epoch = next_epoch(/*at_step_end=*/false, how);
    decision.line = how + "; the job goes on with " + number_of_ranks() +
                    (next.empty() ? "." : ", and" + next + ".");
    return decision;
  }
  decision.give_up = count(State::Starting) == 0;
  if (decision.give_up) {
    decision.line = how + ";" + next + ", which leaves " + counted(left, "rank") +
                    ", fewer than elastic.min = " + std::to_string(options_.min) + ".";
    return decision;
  }
  // The ranks that are left wait.
  const std::uint32_t number = epoch_.number + 1;
  epoch_ = {.number = number, .members = {}, .interrupted = number, .cause = how};
  decision.epoch = epoch_;
  decision.line =
      how + "; the job waits for " + counted(options_.min - left, "process", "processes") + ".";
  return decision;
}

ElasticGroup::Decision ElasticGroup::joined(int process) {
  Decision decision;
  State& state = state_of(process);
  if (state == State::Rank) return decision;
  state = State::Waiting;
  fill_places();
  const std::vector<int> ranks = in(State::Rank);
  if (static_cast<int>(ranks.size()) < options_.min || ranks == epoch_.members) return decision;
  const bool goes_on = !epoch_.members.empty();
  const std::string who = "process " + std::to_string(process) + " has come";
  decision.epoch = next_epoch(/*at_step_end=*/goes_on, who);
  decision.line = who + "; the job goes on with " + number_of_ranks() + ".";
  return decision;
}

ElasticGroup::Decision ElasticGroup::resize(int ranks, TimePoint now) {
  Decision decision;
  if (ranks < options_.min || ranks > options_.max || ranks % options_.multiple != 0) {
    decision.line =
        "cannot go on with " + counted(ranks, "rank") + ": elastic allows " +
        std::to_string(options_.min) + " to " + std::to_string(options_.max) +
        (options_.multiple > 1 ? ", in multiples of " + std::to_string(options_.multiple) : "") +
        ".";
    return decision;
  }
  wanted_ = ranks;
  const std::string cause = "asked for " + counted(ranks, "rank");
  const std::size_t before = epoch_.members.size();
  fill_places();
  if (in(State::Rank) != epoch_.members && !epoch_.members.empty())
    decision.epoch = next_epoch(/*at_step_end=*/true, cause);
  int missing = wanted_ - count(State::Rank) - count(State::Starting);
  for (const int process : in(State::Free)) {
    if (missing-- <= 0) break;
    states_[process] = State::Starting;
    delays_[process].start(now);
    decision.starts.push_back({process, Duration::zero()});
  }
  if (decision.epoch || !decision.starts.empty())
    decision.line = cause + "; the job has " + counted(static_cast<int>(before), "rank") + ".";
  return decision;
}

}  // namespace trireme::inline v0::launch
