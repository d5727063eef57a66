#include "trireme/layers/group_layers.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/layers/context/positions.h"
#include "trireme/layers/context/ring_attention.h"
#include "trireme/layers/expert/exchange.h"
#include "trireme/layers/shares.h"
#include "trireme/layers/tensor/regions.h"
#include "trireme/models/experts.h"

namespace trireme::inline v0::parallel {
namespace {

using models::LayerContext;
using models::LayerFactory;

// A vocabulary in which `pick` selects the rows of the position table, if there is one.
class GroupVocabulary final : public models::Vocabulary {
 public:
  using Pick = at::Tensor (*)(const at::Tensor& tokens, const at::Tensor& position,
                              comm::Communicator& group);
  GroupVocabulary(std::unique_ptr<models::Vocabulary> inner, comm::Communicator& group, Pick pick)
      : inner_(std::move(inner)), group_(group), pick_(pick) {}
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& position) override {
    if (!position.defined()) return inner_->embed(tokens, position);
    return inner_->embed(tokens, pick_(tokens, enter_cut(position, group_), group_));
  }
  at::Tensor logits(const at::Tensor& x) override { return inner_->logits(x); }
  void append_parameters(std::vector<models::NamedTensor>& out) const override {
    inner_->append_parameters(out);
  }

 private:
  const std::unique_ptr<models::Vocabulary> inner_;
  comm::Communicator& group_;
  const Pick pick_;
};

at::Tensor all_positions(const at::Tensor&, const at::Tensor& position, comm::Communicator&) {
  return position;
}

at::Tensor own_rows(const at::Tensor& tokens, const at::Tensor& position,
                    comm::Communicator& group) {
  const std::int64_t length = tokens.size(-1) * group.size();
  if (length > position.size(0))
    throw ConfigError("sequences of " + std::to_string(tokens.size(-1)) + " x " +
                          std::to_string(group.size()) + " positions are longer than the model's " +
                          std::to_string(position.size(0)),
                      {.operation = "context parallel", .advice = "Raise model.block."});
  return cut_positions(position.narrow(0, 0, length), 0, group.rank(), group.size());
}

// The base of both factories: the inner one's layers, with gradients summed over the group.
class GroupLayers : public LayerFactory {
 public:
  GroupLayers(comm::Communicator& group, std::shared_ptr<const LayerFactory> inner,
              GroupVocabulary::Pick pick)
      : group_(group), inner_(std::move(inner)), pick_(pick) {}

  std::unique_ptr<models::Linear> linear(const LayerContext& context,
                                         const models::LinearSpec& spec) const override {
    return inner_->linear(summed(context), spec);
  }
  std::unique_ptr<models::Vocabulary> vocabulary(
      const LayerContext& context, const models::VocabularySpec& spec) const override {
    return std::make_unique<GroupVocabulary>(inner_->vocabulary(summed(context), spec), group_,
                                             pick_);
  }
  std::int64_t heads(std::int64_t heads) const override { return inner_->heads(heads); }
  at::Tensor whole(const at::Tensor& parameter) const override {
    return enter_cut(inner_->whole(parameter), group_);
  }
  at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) const override {
    return inner_->cross_entropy_sum(logits, targets);
  }

 protected:
  LayerContext summed(LayerContext context) const {
    context.use = [&group = group_, outer = context.use](const at::Tensor& parameter) {
      return enter_cut(outer ? outer(parameter) : parameter, group);
    };
    return context;
  }
  // One process's mask: that of all ranks' `x`, which have equal sizes along `dim`.
  at::Tensor mask_of_all(const at::Tensor& x, double p, std::size_t dim) const {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes[dim] *= group_.size();
    return inner_->dropout(at::ones(sizes, x.options()), p);
  }

  comm::Communicator& group_;
  const std::shared_ptr<const LayerFactory> inner_;
  const GroupVocabulary::Pick pick_;
};

class ContextLayers final : public GroupLayers {
 public:
  ContextLayers(comm::Communicator& group, std::shared_ptr<const LayerFactory> inner)
      : GroupLayers(group, std::move(inner), own_rows) {}
  at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const override {
    return ring_attention(qkv, heads, causal, group_);
  }
  std::unique_ptr<models::Experts> experts(const LayerContext& context,
                                           const models::ExpertsSpec& spec) const override {
    return inner_->experts(summed(context), spec);
  }
  at::Tensor dropout(const at::Tensor& x, double p) const override {
    if (group_.size() == 1) return inner_->dropout(x, p);
    return x * cut_positions(mask_of_all(x, p, 1), 1, group_.rank(), group_.size());
  }
};

class ExpertLayers final : public GroupLayers {
 public:
  ExpertLayers(comm::Communicator& group, std::shared_ptr<const LayerFactory> inner)
      : GroupLayers(group, std::move(inner), all_positions) {}
  at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const override {
    return inner_->attention(qkv, heads, causal);
  }
  // This rank's experts get their tokens from all ranks, so their gradients need no sum.
  std::unique_ptr<models::Experts> experts(const LayerContext& context,
                                           const models::ExpertsSpec& spec) const override {
    const int ranks = group_.size();
    check_expert_share(spec.experts, ranks);
    if (ranks == 1) return inner_->experts(context, spec);
    models::ExpertsSpec shared = spec;
    const int own = spec.experts / ranks;
    shared.share = {.first = group_.rank() * own,
                    .count = own,
                    .exchange = expert_exchange(group_, spec.experts),
                    .router = [&group = group_](const at::Tensor& parameter) {
                      return enter_cut(parameter, group);
                    }};
    return inner_->experts(context, shared);
  }
  at::Tensor dropout(const at::Tensor& x, double p) const override {
    if (group_.size() == 1) return inner_->dropout(x, p);
    return x * mask_of_all(x, p, 0).narrow(0, group_.rank() * x.size(0), x.size(0));
  }
};

}  // namespace

std::shared_ptr<const LayerFactory> context_layers(comm::Communicator& group,
                                                   std::shared_ptr<const LayerFactory> inner) {
  return std::make_shared<ContextLayers>(group, std::move(inner));
}

std::shared_ptr<const LayerFactory> expert_layers(comm::Communicator& group,
                                                  std::shared_ptr<const LayerFactory> inner) {
  return std::make_shared<ExpertLayers>(group, std::move(inner));
}

MicroBatch own_sequences(const MicroBatch& whole, int rank, int ranks) {
  MicroBatch own = whole;
  for (auto& [name, field] : own.fields) {
    const std::int64_t samples = field.size(0);
    check_expert_sequences(samples, ranks);
    field = field.narrow(0, rank * (samples / ranks), samples / ranks);
  }
  return own;
}

}  // namespace trireme::inline v0::parallel
