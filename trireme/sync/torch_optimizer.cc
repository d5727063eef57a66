#include "trireme/sync/torch_optimizer.h"

#include <ATen/Functions.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <typeinfo>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::parallel {
namespace {

using torch::optim::Optimizer;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kOther = "an optimizer of its own";

// Made if there is none, also for a user's optimizer that is derived from LibTorch's. Null: such an
// optimizer has made a state of another type.
template <class State>
State* state_of(Optimizer& optimizer, const at::Tensor& parameter) {
  auto& slot = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!slot) slot = std::make_unique<State>();
  return dynamic_cast<State*>(slot.get());
}

template <class Options>
const Options& options_of(Optimizer& optimizer, const at::Tensor& parameter) {
  for (auto& group : optimizer.param_groups())
    for (const at::Tensor& member : group.params())
      if (member.is_same(parameter)) return static_cast<const Options&>(group.options());
  return static_cast<const Options&>(optimizer.defaults());
}

// A moment that the optimizer would make in its first step.
at::Tensor moment(const at::Tensor& existing, const at::Tensor& parameter) {
  return existing.defined() ? existing : at::zeros_like(parameter.detach());
}

template <class State, class Options>
Named adam_tensors(Optimizer& optimizer, const at::Tensor& parameter) {
  State* const state = state_of<State>(optimizer, parameter);
  if (state == nullptr) return {};
  state->exp_avg(moment(state->exp_avg(), parameter));
  state->exp_avg_sq(moment(state->exp_avg_sq(), parameter));
  Named named = {{"exp_avg", state->exp_avg()}, {"exp_avg_sq", state->exp_avg_sq()}};
  if (options_of<Options>(optimizer, parameter).amsgrad()) {
    state->max_exp_avg_sq(moment(state->max_exp_avg_sq(), parameter));
    named.emplace_back("max_exp_avg_sq", state->max_exp_avg_sq());
  }
  return named;
}

Named sgd_tensors(Optimizer& optimizer, const at::Tensor& parameter) {
  if (options_of<torch::optim::SGDOptions>(optimizer, parameter).momentum() == 0) return {};
  auto* const state = state_of<torch::optim::SGDParamState>(optimizer, parameter);
  if (state == nullptr) return {};
  state->momentum_buffer(moment(state->momentum_buffer(), parameter));
  return {{"momentum_buffer", state->momentum_buffer()}};
}

Named rmsprop_tensors(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto& options = options_of<torch::optim::RMSpropOptions>(optimizer, parameter);
  auto* const state = state_of<torch::optim::RMSpropParamState>(optimizer, parameter);
  if (state == nullptr) return {};
  state->square_avg(moment(state->square_avg(), parameter));
  Named named = {{"square_avg", state->square_avg()}};
  if (options.momentum() > 0) {
    state->momentum_buffer(moment(state->momentum_buffer(), parameter));
    named.emplace_back("momentum_buffer", state->momentum_buffer());
  }
  if (options.centered()) {
    state->grad_avg(moment(state->grad_avg(), parameter));
    named.emplace_back("grad_avg", state->grad_avg());
  }
  return named;
}

Named adagrad_tensors(Optimizer& optimizer, const at::Tensor& parameter) {
  auto* const state = state_of<torch::optim::AdagradParamState>(optimizer, parameter);
  if (state == nullptr) return {};
  if (!state->sum().defined()) {
    const auto& options = options_of<torch::optim::AdagradOptions>(optimizer, parameter);
    state->sum(at::full_like(parameter.detach(), options.initial_accumulator_value()));
  }
  return {{"sum", state->sum()}};
}

// Name types in full: trireme::AdamW would be found before torch::optim::AdamW.
template <class Type>
bool is(const Optimizer& optimizer) {
  return dynamic_cast<const Type*>(&optimizer) != nullptr;
}

// Calls visit(state) with the parameter's state if it counts updates.
template <class Visit>
void with_step(Optimizer& optimizer, const at::Tensor& parameter, Visit visit) {
  const auto visit_known = [&](auto* state) {
    if (state != nullptr) visit(*state);
  };
  if (is<torch::optim::Adam>(optimizer))
    visit_known(state_of<torch::optim::AdamParamState>(optimizer, parameter));
  if (is<torch::optim::AdamW>(optimizer))
    visit_known(state_of<torch::optim::AdamWParamState>(optimizer, parameter));
  if (is<torch::optim::RMSprop>(optimizer))
    visit_known(state_of<torch::optim::RMSpropParamState>(optimizer, parameter));
  if (is<torch::optim::Adagrad>(optimizer))
    visit_known(state_of<torch::optim::AdagradParamState>(optimizer, parameter));
}

}  // namespace

std::string name_of(const Optimizer& optimizer) {
  if (is<torch::optim::SGD>(optimizer)) return "SGD";
  if (is<torch::optim::AdamW>(optimizer)) return "AdamW";
  if (is<torch::optim::Adam>(optimizer)) return "Adam";
  if (is<torch::optim::RMSprop>(optimizer)) return "RMSprop";
  if (is<torch::optim::Adagrad>(optimizer)) return "Adagrad";
  if (is<torch::optim::LBFGS>(optimizer)) return "LBFGS";
  return kOther;
}

std::string numbers_of(const Optimizer& optimizer, const torch::optim::OptimizerOptions& options) {
  std::string text;
  const auto add = [&](const char* name, double number) {
    text += std::string(", ") + name + " " + number_text(number);
  };
  const auto adam = [&]<class Options>(const Options& own) {
    add("beta1", std::get<0>(own.betas()));
    add("beta2", std::get<1>(own.betas()));
    add("eps", own.eps());
    add("weight_decay", own.weight_decay());
    add("amsgrad", own.amsgrad());
  };
  if (is<torch::optim::SGD>(optimizer)) {
    const auto& own = static_cast<const torch::optim::SGDOptions&>(options);
    add("momentum", own.momentum());
    add("dampening", own.dampening());
    add("weight_decay", own.weight_decay());
    add("nesterov", own.nesterov());
  } else if (is<torch::optim::AdamW>(optimizer)) {
    adam(static_cast<const torch::optim::AdamWOptions&>(options));
  } else if (is<torch::optim::Adam>(optimizer)) {
    adam(static_cast<const torch::optim::AdamOptions&>(options));
  } else if (is<torch::optim::RMSprop>(optimizer)) {
    const auto& own = static_cast<const torch::optim::RMSpropOptions&>(options);
    add("alpha", own.alpha());
    add("eps", own.eps());
    add("weight_decay", own.weight_decay());
    add("momentum", own.momentum());
    add("centered", own.centered());
  } else if (is<torch::optim::Adagrad>(optimizer)) {
    const auto& own = static_cast<const torch::optim::AdagradOptions&>(options);
    add("lr_decay", own.lr_decay());
    add("weight_decay", own.weight_decay());
    add("initial_accumulator_value", own.initial_accumulator_value());
    add("eps", own.eps());
  }
  return text;
}

std::vector<double> learning_rates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void set_learning_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  for (std::size_t i = 0; i < rates.size(); ++i)
    optimizer.param_groups()[i].options().set_lr(rates[i]);
}

void require_supported(const Optimizer& optimizer) {
  if (!is<torch::optim::LBFGS>(optimizer)) return;
  refuse("DataParallel",
         "LBFGS evaluates the loss several times per step, on this rank's data alone",
         "Use SGD, Adam, AdamW, RMSprop or Adagrad.");
}

void require_element_wise(const Optimizer& optimizer) {
  require_supported(optimizer);
  if (name_of(optimizer) != kOther) return;
  refuse("DataParallel",
         "under ZeRO an optimizer sees parts of parameters, and of this one it is not known "
         "whether it updates element by element",
         "Use SGD, Adam, AdamW, RMSprop or Adagrad, or sync = \"plain\".");
}

OptimizerOptions own_optimizer(Optimizer& optimizer) {
  const auto refuse_served = [&](const std::string& what) {
    refuse("DataParallel",
           what + " cannot be combined with sync = \"server\", where servers run the optimizer",
           "Use SGD, AdamW, Adam without weight decay or Adagrad, with one parameter group, or "
           "sync = \"plain\".");
  };
  if (optimizer.param_groups().size() != 1) refuse_served("several parameter groups");
  const auto adam = [&]<class Options>(const Options& own, double weight_decay) {
    if (own.amsgrad()) refuse_served("amsgrad");
    const auto [beta1, beta2] = own.betas();
    return AdamW{own.lr(), beta1, beta2, own.eps(), weight_decay, {{"*", weight_decay}}};
  };
  const auto& options = optimizer.param_groups().front().options();
  if (is<torch::optim::AdamW>(optimizer)) {
    const auto& own = static_cast<const torch::optim::AdamWOptions&>(options);
    return adam(own, own.weight_decay());
  }
  if (is<torch::optim::Adam>(optimizer)) {
    const auto& own = static_cast<const torch::optim::AdamOptions&>(options);
    if (own.weight_decay() != 0) refuse_served("Adam with weight decay");
    return adam(own, 0);
  }
  if (is<torch::optim::Adagrad>(optimizer)) {
    const auto& own = static_cast<const torch::optim::AdagradOptions&>(options);
    if (own.lr_decay() != 0) refuse_served("Adagrad with lr_decay");
    if (own.initial_accumulator_value() != 0)
      refuse_served("Adagrad with an initial_accumulator_value");
    return Adagrad{own.lr(), own.eps(), own.weight_decay(), {{"*", own.weight_decay()}}};
  }
  if (!is<torch::optim::SGD>(optimizer)) refuse_served(name_of(optimizer));
  const auto& own = static_cast<const torch::optim::SGDOptions&>(options);
  return Sgd{.learning_rate = own.lr(),
             .momentum = own.momentum(),
             .weight_decay = own.weight_decay(),
             .nesterov = own.nesterov(),
             .dampening = own.dampening(),
             .groups = {{"*", own.weight_decay()}}};
}

void forget_state(Optimizer& optimizer, const at::Tensor& parameter) {
  optimizer.state().erase(parameter.unsafeGetTensorImpl());
}

// The state's tensors stay, with fewer elements: only `from` is in a group, whose options say which
// tensors there are.
void cut_state(Optimizer& optimizer, const at::Tensor& from, const at::Tensor& to,
               std::int64_t begin, std::int64_t end) {
  auto& kept = optimizer.state();
  const auto found = kept.find(from.unsafeGetTensorImpl());
  if (found == kept.end()) return;
  const Named all = state_tensors(optimizer, from);
  if (all.empty()) {
    if (dynamic_cast<torch::optim::SGDParamState*>(found->second.get()) == nullptr)
      refuse("DataParallel", "the optimizer has a state of its own type, which cannot be sharded",
             "Use parallel.sync = \"plain\".");
    return forget_state(optimizer, from);  // of an SGD whose momentum is off now
  }
  for (const auto& [name, whole] : all)
    whole.set_data(whole.flatten().narrow(0, begin, end - begin).clone());
  auto state = std::move(found->second);
  kept.erase(found);
  kept[to.unsafeGetTensorImpl()] = std::move(state);
}

Named state_tensors(Optimizer& optimizer, const at::Tensor& parameter) {
  if (is<torch::optim::Adam>(optimizer))
    return adam_tensors<torch::optim::AdamParamState, torch::optim::AdamOptions>(optimizer,
                                                                                 parameter);
  if (is<torch::optim::AdamW>(optimizer))
    return adam_tensors<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(optimizer,
                                                                                   parameter);
  if (is<torch::optim::SGD>(optimizer)) return sgd_tensors(optimizer, parameter);
  if (is<torch::optim::RMSprop>(optimizer)) return rmsprop_tensors(optimizer, parameter);
  if (is<torch::optim::Adagrad>(optimizer)) return adagrad_tensors(optimizer, parameter);
  return {};
}

void make_expected_state(Optimizer& optimizer, const at::Tensor& parameter) {
  if (is<torch::optim::Adagrad>(optimizer)) adagrad_tensors(optimizer, parameter);
}

bool is_derived(const Optimizer& optimizer) {
  const auto& type = typeid(optimizer);
  return name_of(optimizer) != kOther && type != typeid(torch::optim::SGD) &&
         type != typeid(torch::optim::Adam) && type != typeid(torch::optim::AdamW) &&
         type != typeid(torch::optim::RMSprop) && type != typeid(torch::optim::Adagrad);
}

bool lacks_state(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto& kept = optimizer.state();
  const bool momentum = is<torch::optim::SGD>(optimizer) &&
                        options_of<torch::optim::SGDOptions>(optimizer, parameter).momentum() != 0;
  return (momentum || is_derived(optimizer)) &&
         kept.find(parameter.unsafeGetTensorImpl()) == kept.end();
}

bool dampens(Optimizer& optimizer, const at::Tensor& parameter) {
  if (!is<torch::optim::SGD>(optimizer)) return false;
  const auto& options = options_of<torch::optim::SGDOptions>(optimizer, parameter);
  return options.momentum() != 0 && options.dampening() != 0;
}

bool has_momentum(Optimizer& optimizer, const at::Tensor& parameter) {
  const Named named = state_tensors(optimizer, parameter);
  return std::any_of(named.begin(), named.end(), [](const auto& one) {
    return one.second.count_nonzero().template item<std::int64_t>() > 0;
  });
}

// Must not make a state: LibTorch's optimizers treat one that exists as complete.
std::int64_t updates(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto& kept = optimizer.state();
  if (kept.find(parameter.unsafeGetTensorImpl()) == kept.end()) return 0;
  std::int64_t count = 0;
  with_step(optimizer, parameter, [&](auto& state) { count = state.step(); });
  return count;
}

void set_updates(Optimizer& optimizer, const at::Tensor& parameter, std::int64_t count) {
  with_step(optimizer, parameter, [&](auto& state) { state.step(count); });
}

}  // namespace trireme::inline v0::parallel
