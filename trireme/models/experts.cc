#include "trireme/models/experts.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <utility>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/models/norm.h"
#include "trireme/models/routing.h"
#include "trireme/tensor/functions/loss_gradient.h"

namespace trireme::inline v0::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local RoutingCounts* counts_of_thread = nullptr;

// y[tokens[i]] += gates[i] rows[i], in the gates' type; saves the rows in their own type.
class Combine : public torch::autograd::Function<Combine> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& gates,
                            const at::Tensor& tokens, std::int64_t count) {
    ctx->save_for_backward({rows, gates, tokens});
    return at::zeros({count, rows.size(1)}, gates.options())
        .index_add_(0, tokens, rows.to(gates.scalar_type()) * gates.unsqueeze(1));
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &gates = saved[1];
    const at::Tensor of_row = gradients[0].index_select(0, saved[2]);
    return {(of_row * gates.unsqueeze(1)).to(rows.scalar_type()),
            (of_row * rows.to(gates.scalar_type())).sum(1), at::Tensor(), at::Tensor()};
  }
};

class MixtureOfExperts final : public Experts {
 public:
  MixtureOfExperts(const LayerFactory& layers, const LayerContext& context, const ExpertsSpec& spec)
      : spec_(spec), stream_(stream_type(context.type)) {
    LayerContext of_router = context;
    of_router.type = stream_;
    if (spec.share) {
      of_router.use = [context, use = spec.share->router](const at::Tensor& parameter) {
        return use(context.used(parameter));
      };
    }
    router_ = layers.linear(of_router, {.name = "router",
                                        .in = spec.expert.width,
                                        .out = spec.experts,
                                        .stddev = spec.expert.stddev});
    const int first = spec.share ? spec.share->first : 0;
    const int count = spec.share ? spec.share->count : spec.experts;
    for (int expert = first; expert < first + count; ++expert) {
      FeedForwardSpec own = spec.expert;
      own.name = "experts." + std::to_string(expert);
      experts_.emplace_back(layers, context, own);
    }
    list_parameters();
  }

  Mixed forward(const at::Tensor& x_BTC) override {
    const std::int64_t batch = x_BTC.size(0), length = x_BTC.size(1), top_k = spec_.top_k;
    const at::Tensor probabilities = router_->forward(x_BTC.to(stream_)).softmax(-1);  // [B, T, E]
    const Routing routing =
        route(probabilities.detach(), spec_.top_k,
              capacity_of(length, spec_.experts, spec_.top_k, spec_.capacity_factor));
    if (counts_of_thread != nullptr) {
      counts_of_thread->choices += batch * length * top_k;
      counts_of_thread->dropped += routing.dropped;
    }
    at::Tensor gates = probabilities.flatten(0, 1).gather(1, routing.chosen);  // [B T, top_k]
    if (top_k > 1) gates = gates / gates.sum(1, true);
    const at::Tensor tokens = routing.places.floor_divide(top_k);
    const at::Tensor rows = x_BTC.flatten(0, 1).index_select(0, tokens);
    const at::Tensor y =
        Combine::apply(computed(rows, routing.counts),
                       gates.flatten().index_select(0, routing.places), tokens, batch * length);
    const double weight = static_cast<double>(spec_.experts) / static_cast<double>(top_k * length);
    return {.y = y.view(x_BTC.sizes()),
            .balance = (routing.load.to(stream_) * probabilities.sum(1)).sum() * weight};
  }

  void append_parameters(std::vector<NamedTensor>& out) const override {
    router_->append_parameters(out);
    out.insert(out.end(), of_experts_.begin(), of_experts_.end());
  }

 private:
  // Lists all experts' parameters in order; those of other ranks have no elements.
  void list_parameters() {
    std::vector<std::vector<NamedTensor>> own(experts_.size());
    for (std::size_t i = 0; i < experts_.size(); ++i) experts_[i].append_parameters(own[i]);
    const int count = static_cast<int>(experts_.size()),
              place = spec_.share ? spec_.share->first / count : 0;
    for (int expert = 0; expert < spec_.experts; ++expert) {
      const int holder = expert / count;
      const auto& like = own[holder == place ? static_cast<std::size_t>(expert % count) : 0];
      for (NamedTensor one : like) {
        if (!spec_.share) {
          of_experts_.push_back(std::move(one));
          continue;
        }
        if (one.part.of == 1) one.part.whole = one.tensor.size(0);  // its shard is along dim 0
        one.part.place = place;
        one.part.holder = holder;
        one.part.places = spec_.experts / count;
        if (holder != place) take_away(one, expert);
        of_experts_.push_back(std::move(one));
      }
    }
  }

  void take_away(NamedTensor& one, int expert) {
    const std::string first = "experts." + std::to_string(spec_.share->first);
    one.name = "experts." + std::to_string(expert) + one.name.substr(first.size());
    std::vector<std::int64_t> sizes = one.tensor.sizes().vec();
    sizes[static_cast<std::size_t>(one.part.dim)] = 0;
    one.tensor = at::empty(sizes, one.tensor.options()).set_requires_grad(true);
    elsewhere_.push_back(one.tensor);
  }

  at::Tensor computed(const at::Tensor& rows, const std::vector<std::int64_t>& counts) const {
    if (!spec_.share) return by_experts(rows, counts);
    const Exchanged here = spec_.share->exchange(rows, counts);
    return here.back(by_experts(here.rows, here.counts));
  }

  // Pads each expert's rows with zeros and cuts the padding off again. An expert without rows still
  // computes zeros, because other ranks wait for its layers' collectives, forward and backward.
  at::Tensor by_experts(const at::Tensor& rows, const std::vector<std::int64_t>& counts) const {
    std::vector<at::Tensor> outputs;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      const std::int64_t count = counts[i];
      const at::Tensor own =
          at::cat({rows.narrow(0, begin, count),
                   at::zeros({computed_rows(count) - count, spec_.expert.width}, rows.options())});
      outputs.push_back(experts_[i].forward(own).narrow(0, 0, count));
      begin += count;
    }
    // Zero rows: they give these parameters a gradient, so that gradient buckets need not wait for
    // them until the end of backward.
    for (const at::Tensor& none : elsewhere_) outputs.push_back(none.view({0, spec_.expert.width}));
    return at::cat(outputs);
  }

  const ExpertsSpec spec_;
  const at::ScalarType stream_;
  std::unique_ptr<Linear> router_;
  std::vector<FeedForward> experts_;
  std::vector<NamedTensor> of_experts_;
  std::vector<at::Tensor> elsewhere_;  // parameters of other ranks' experts, without elements
};

class WithLoss : public torch::autograd::Function<WithLoss> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& loss) {
    ctx->saved_data["type"] = static_cast<std::int64_t>(loss.scalar_type());
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {gradients[0],
            at::full({}, tensor::loss_gradient(), gradients[0].options().dtype(type))};
  }
};

}  // namespace

void check_experts(const ExpertsSpec& spec) {
  if (spec.top_k < 1 || spec.top_k > spec.experts)
    refuse("config",
           "a token cannot go to " + std::to_string(spec.top_k) + " of " +
               std::to_string(spec.experts) + (spec.experts == 1 ? " expert" : " experts"),
           spec.experts == 1 ? "Set model.top_k to 1." : "Set model.top_k to 1 or 2.");
  if (!(spec.capacity_factor > 0))
    refuse("config",
           "experts take nothing with a capacity factor of " + number_text(spec.capacity_factor),
           "Set model.capacity_factor to 1.25.");
}

std::unique_ptr<Experts> make_experts(const LayerFactory& layers, const LayerContext& context,
                                      const ExpertsSpec& spec) {
  check_experts(spec);
  return std::make_unique<MixtureOfExperts>(layers, context, spec);
}

at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss) {
  return WithLoss::apply(x, loss);
}

RoutingScope::RoutingScope(RoutingCounts& into) : ScopedValue(counts_of_thread, &into) {}

}  // namespace trireme::inline v0::models
