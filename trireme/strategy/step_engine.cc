#include "trireme/strategy/step_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trireme/base/words.h"
#include "trireme/job/job.h"
#include "trireme/optim/schedule.h"
#include "trireme/strategy/shares.h"

namespace trireme::inline v0::parallel {
namespace {

observe::TracedScope traced(const StrategyContext& env, const char* what) {
  return {env.trace.get(), *env.world->waiter(), what};
}

}  // namespace

StepEngine::StepEngine(const StrategyContext& env, StepParts parts)
    : env_(env), parts_(std::move(parts)) {}

// A child of fork() is not a rank.
StepEngine::~StepEngine() {
  if (!failed_ && getpid() == process_ && std::uncaught_exceptions() == exceptions_)
    leave(*env_.world);
}

Work StepEngine::enter_barrier() {
  return parallel::enter_barrier(*env_.world, {.batch = step_, .total = total_}, env_.host);
}

void StepEngine::begin(std::int64_t step, std::uint32_t total, std::span<const Use> order) {
  start_ = env_.world->waiter()->now();
  waited_ = parts_.time_waited();
  step_ = step;
  total_ = total;
  begun_ = ended_ + 1;
  vote_ = {};
  losses_.emplace(total, parts_.assignment, parts_.data_rank);
  env_.set_step(static_cast<long>(step));
  parts_.sync.begin(total, order);
  parts_.guards.begin(total, parts_.assignment, env_.world->rank());
  entered_ = parts_.barrier == StepParts::Barrier::WithBucket ? Work() : enter_barrier();
  if (parts_.barrier == StepParts::Barrier::EarlyAndWait) entered_.wait();
}

StepResult StepEngine::finish() {
  vote_.time = measure();
  const Verdict verdict = agree();
  times_ = verdict.times;
  const Arrival last = last_of(times_);
  StepResult result{.count = verdict.count,
                    .stop_signal = verdict.stop_signal,
                    .learning_rate = parts_.target.learning_rates().front(),
                    .last_rank = last.rank,
                    .behind = last.behind};
  try {
    throw_if_refused(verdict, env_.rank(), env_.host, static_cast<long>(step_));
    double loss = parts_.loss_ranks != nullptr ? losses_->sum() : 0;
    if (parts_.runner != nullptr) parts_.runner->tell_all(std::span(&loss, 1));
    result.loss = loss / static_cast<double>(std::max<std::int64_t>(result.count, 1));
    if (verdict.overflow) {
      result.skipped = parts_.guards.back_off(verdict);
      drop();
    } else {
      require_training(verdict, loss);
      if (local()) {
        apply_own(result, verdict.squares);
      } else {
        apply(result);
      }
      parts_.guards.passed();
    }
  } catch (const StepRefused& refused) {
    drop();
    parts_.guards.skip(refused);
    result.skipped = refused.message();
    result.loss = std::numeric_limits<double>::quiet_NaN();  // not every rank has it
  }
  ended_ = begun_;
  parts_.guards.report(result);
  result.communication = parts_.time_waited() - waited_;
  result.total = env_.world->waiter()->now() - start_;
  return result;
}

// Waits are left out: a rank that is fast waits for the others' buckets.
RankTime StepEngine::measure() const {
  const TimePoint now = env_.world->waiter()->now();
  const Duration waited = parts_.time_waited();
  const Duration passes = now - start_ - (waited - waited_);
  const bool first = voted_ == TimePoint();
  return {.busy = first ? passes : now - voted_ - (waited - waited_at_vote_),
          .passes = passes,
          .micro_batches = static_cast<std::uint32_t>(
              leaves_of(parts_.assignment, total_, parts_.data_rank).size())};
}

// Completes the sums and votes. All ranks get the same verdict, unless they train on their own.
Verdict StepEngine::agree() {
  if (!parts_.counts_items) vote_.count = 0;
  if (vote_.time.micro_batches > 0) vote_.take_rates(parts_.target.learning_rates(), !local());
  vote_.stop_signal = env_.stop_signal();
  const Work reduced = parts_.sync.finish();
  const Work loss_sum = parts_.loss_ranks != nullptr
                            ? losses_->reduce(*parts_.loss_ranks, env_.reduce, "loss")
                            : Work();
  if (const auto refusal = parts_.sync.refusal()) parts_.guards.enter(*refusal, vote_);
  settle_own();
  const Vote vote(*env_.world, vote_);
  const Work guarded = parts_.guards.reduce(*env_.world, env_.reduce);
  const Work sent = parts_.runner != nullptr ? parts_.runner->sent() : Work();
  {
    const auto wait = traced(env_, "wait for gradients");
    const std::array<Work, 6> works = {reduced, loss_sum, vote.work(), guarded, entered_, sent};
    Work::all(works).wait();
  }
  voted_ = env_.world->waiter()->now();
  waited_at_vote_ = parts_.time_waited();
  Verdict verdict = vote.result();
  if (env_.own_world) verdict.refusing_rank = env_.rank();
  if (parts_.runner != nullptr) parts_.runner->settle(verdict.ok);
  take_stop(verdict.stop_signal);
  return verdict;
}

void StepEngine::take_stop(int signal) {
  stop_signal_ = signal;
  if (signal > kRanksChange) env_.note_stop(signal);
}

// Refuses, on all ranks, a batch that would update by zero.
void StepEngine::require_training(const Verdict& verdict, double loss) const {
  const auto refuse = [this](const std::string& what, const char* advice) {
    throw StepRefused(ExitCode::UserCode, what,
                      {.rank = env_.rank(),
                       .host = env_.host,
                       .operation = "step",
                       .step = static_cast<long>(step_),
                       .advice = std::string("Nothing was applied on any rank. ") + advice});
  };
  if (!verdict.trains)
    refuse("no rank called backward() on a loss of the module before step()",
           "Call backward() before each step(); for a batch without items, backward(sum, 0).");
  if (verdict.count == 0 && std::isfinite(loss) && loss != 0)
    refuse("the batch's loss is " + number_text(loss) + ", summed over 0 items",
           "Give backward(sum, count), or MicroBatch::count, how many items the loss sums.");
}

// Before the vote of a local step: takes this rank's norm and the overflow of its sums into the
// vote. After an overflow in fp16 the sum says nothing.
void StepEngine::settle_own() {
  if (!local() || vote_.overflow) return;
  parts_.sync.settle();
  if (parts_.clip > 0) vote_.squares = parts_.sync.squared_norm();
  if (parts_.clip > 0 && std::isfinite(vote_.squares)) return;
  if (const std::int64_t parameter = parts_.sync.first_overflow(); parameter >= 0)
    vote_.refuse(Refusal::kNotFinite,
                 "its gradient of " + parts_.target.name_of(static_cast<std::size_t>(parameter)) +
                     " is finite in every micro-batch, but their sum is not",
                 "lower the learning rate");
}

void StepEngine::apply(StepResult& result) {
  parts_.sync.settle();
  const double scale = result.count > 0 ? 1.0 / static_cast<double>(result.count) : 0.0;
  const bool measures = result.count > 0 && (parts_.clip > 0 || parts_.guards.need_norm());
  double norm = 0;
  if (measures) {
    norm = std::sqrt(parts_.sync.squared_norm()) / static_cast<double>(result.count);
    result.gradient_norm = norm;
  }
  // A finite norm implies that every gradient is finite.
  if (!measures || !std::isfinite(norm))
    refuse_overflow(
        parts_.sync, [this](std::size_t parameter) { return parts_.target.name_of(parameter); },
        env_.rank(), env_.host, static_cast<long>(step_));
  if (!std::exchange(checked_, true)) parts_.target.check_first_gradients();
  if (result.count > 0) result.skipped = parts_.guards.judge(result.loss, norm);
  if (!result.skipped.empty()) return drop();
  parts_.guards.applied(norm, result.count);
  parts_.target.gather_statistics(total_);
  if (parts_.meets_before_update) env_.world->barrier({.label = "update"}).wait();
  parts_.target.fold_statistics();
  update(scale * optim::clipping_factor(norm, parts_.clip));
}

// decentralised/local_sync.h explains the scale N/count.
void StepEngine::apply_own(StepResult& result, double all_squares) {
  const double ranks = env_.world->size();
  const double scale = result.count > 0 ? ranks / static_cast<double>(result.count) : 0.0;
  if (parts_.clip > 0) result.gradient_norm = std::sqrt(all_squares / ranks) * scale;
  parts_.target.fold_statistics();
  update(scale * optim::clipping_factor(std::sqrt(vote_.squares) * scale, parts_.clip));
  parts_.target.mixed();
}

void StepEngine::update(double scale) {
  const auto span = traced(env_, "optimizer");
  updating_ = true;
  parts_.target.update(scale);
  parts_.sync.publish().wait();
  updating_ = false;
  ended_ = begun_;
}

void StepEngine::drop() {
  parts_.sync.drop();
  parts_.target.drop();
}

}  // namespace trireme::inline v0::parallel
