#include "trireme/pipeline/executor.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::parallel {
namespace {

using plan::Action;
using plan::ActionKind;

constexpr std::size_t kAhead = 2;  // receives beyond the one that is waited for

bool is_receive(ActionKind kind) {
  return kind == ActionKind::RecvActivation || kind == ActionKind::RecvGradient;
}

}  // namespace

Executor::Executor(ExecutorOptions options) : options_(std::move(options)) {}

StageLink& Executor::link(bool gradients, int from, int to) {
  const auto found = links_.find({gradients, from, to});
  if (found != links_.end()) return found->second;
  const int other = is_mine(from) ? to : from;
  return links_
      .emplace(std::tuple(gradients, from, to),
               StageLink({.pipeline = options_.pipeline,
                          .peer = options_.rank_of_stage[static_cast<std::size_t>(other)],
                          .from = from,
                          .to = to,
                          .gradients = gradients,
                          .device = options_.device}))
      .first->second;
}

StageLink& Executor::link_of(const Action& receive) {
  return receive.kind == ActionKind::RecvActivation ? link(false, receive.stage - 1, receive.stage)
                                                    : link(true, receive.stage + 1, receive.stage);
}

void Executor::run(const plan::Schedule& schedule, std::span<const std::string> keys,
                   Passes& passes) {
  const auto& order = schedule.order[static_cast<std::size_t>(rank())];
  keys_ = keys;
  receives_.clear();
  std::copy_if(order.begin(), order.end(), std::back_inserter(receives_),
               [this](const Action& action) {
                 return is_receive(action.kind) && is_here(action.microbatch);
               });
  posted_ = received_ = 0;
  parcels_.clear();
  post_ahead();
  for (const Action& action : order) run_one(action, passes);
  TRIREME_CHECK(received_ == receives_.size());
}

void Executor::post_ahead() {
  for (; posted_ < std::min(receives_.size(), received_ + 1 + kAhead); ++posted_) {
    const Action& receive = receives_[posted_];
    link_of(receive).post(key_of(receive), receive.microbatch);
  }
}

void Executor::run_one(const Action& action, Passes& passes) {
  if (is_transfer(action.kind) && !is_here(action.microbatch)) return;
  switch (action.kind) {
    case ActionKind::RecvActivation:
    case ActionKind::RecvGradient: {
      const bool gradient = action.kind == ActionKind::RecvGradient;
      Parcel parcel = link_of(action).receive();
      ++received_;
      post_ahead();
      const int from = gradient ? action.stage + 1 : action.stage - 1;
      return put(gradient, from, action.microbatch, std::move(parcel));
    }
    case ActionKind::SendActivation:
    case ActionKind::SendGradient:
      return send(action, passes);
    default:
      return run_pass(action, passes);
  }
}

void Executor::run_pass(const Action& action, Passes& passes) {
  const TimePoint begin = options_.on_pass ? options_.waiter->now() : TimePoint{};
  bool ran = false;
  plan::each_pass(action, [&](const Action& pass) {
    if (is_here(pass.microbatch)) {
      run_one_way(pass, passes);
      ran = true;
    }
    passes.end_pass(pass.kind, pass.stage, pass.microbatch);
  });
  if (options_.on_pass && ran) options_.on_pass(action, begin, options_.waiter->now());
}

void Executor::run_one_way(const Action& pass, Passes& passes) {
  switch (pass.kind) {
    case ActionKind::Forward:
      return forward(pass.stage, pass.microbatch, passes);
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
      return backward(pass, passes);
    case ActionKind::BackwardWeight:
      return passes.backward_weight(pass.stage, pass.microbatch);
    default:
      throw ConfigError(
          "the schedule contains " + text_of(pass) + ", an action that Trireme does not run",
          {.operation = "pipeline",
           .advice = "Leave weights, recomputation and offload to the strategy's "
                     "options."});
  }
}

Parcel Executor::take(bool gradient, int stage, int micro) {
  const auto found = parcels_.find({gradient, stage, micro});
  TRIREME_CHECK(found != parcels_.end());
  Parcel parcel = std::move(found->second);
  parcels_.erase(found);
  return parcel;
}

void Executor::put(bool gradient, int stage, int micro, Parcel parcel) {
  parcels_[{gradient, stage, micro}] = std::move(parcel);
}

void Executor::forward(int stage, int micro, Passes& passes) {
  Parcel in = stage == 0 ? Parcel{} : take(false, stage - 1, micro);
  Parcel out{.failed = in.failed};
  if (!in.failed) out = passes.forward(stage, micro, std::move(in));
  if (!is_last(stage)) put(false, stage, micro, std::move(out));
}

void Executor::backward(const Action& pass, Passes& passes) {
  const int stage = pass.stage, micro = pass.microbatch;
  Parcel gradients = is_last(stage) ? Parcel{} : take(true, stage + 1, micro);
  Parcel out = pass.kind == ActionKind::Backward
                   ? passes.backward(stage, micro, std::move(gradients))
                   : passes.backward_input(stage, micro, std::move(gradients));
  if (stage > 0) put(true, stage, micro, std::move(out));
}

void Executor::send(const Action& action, Passes& passes) {
  const bool gradient = action.kind == ActionKind::SendGradient;
  const int to = gradient ? action.stage - 1 : action.stage + 1;
  StageLink& out = link(gradient, action.stage, to);
  const std::string& key = key_of(action);
  Parcel parcel = take(gradient, action.stage, action.microbatch);
  if (!parcel.failed) {
    try {
      out.check(key, parcel,
                options_.values_after[static_cast<std::size_t>(std::min<int>(action.stage, to))]);
    } catch (const ConfigError&) {
      passes.refuse(std::current_exception());
      parcel = {.failed = true};
    }
  }
  out.send(key, action.microbatch, parcel);
}

Work Executor::sent() {
  std::vector<Work> works;
  for (auto& [place, link] : links_) works.push_back(link.sent());
  return Work::all(works);
}

void Executor::settle(bool good) {
  for (auto& [place, link] : links_) link.settle(good);
}

}  // namespace trireme::inline v0::parallel
