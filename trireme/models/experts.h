// A mixture of experts that replaces a transformer's MLP (Shazeer et al. 2017, arXiv:1701.06538;
// GShard, Lepikhin et al. 2020, arXiv:2006.16668; Switch, Fedus et al. 2021, arXiv:2101.03961). A
// router gives each token probabilities over the experts. The token's top_k most probable experts
// compute it, within their capacity (models/routing.h). Their outputs are added, each times its
// probability (for top_k > 1 divided by the sum of the chosen ones). A dropped choice adds nothing.
//
// If a group of ranks shares the experts, each rank holds some of them and an ExpertExchange moves
// the tokens (layers/expert/exchange.h). Router and probabilities are fp32 (fp64 under fp64). Use
// from one thread at a time.
// Legend: B sequences, T positions, C width, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/models/feed_forward.h"
#include "trireme/models/layer_factory.h"
#include "trireme/tensor/scoped_value.h"

namespace trireme::inline v0::models {

/// The rows that this rank's experts compute: counts[i] rows for its i-th expert, expert after
/// expert; within an expert, in the order of the source ranks.
struct Exchanged {
  at::Tensor rows;
  std::vector<std::int64_t> counts;
  /// Sends the experts' outputs, one per row of `rows`, back to the ranks of their tokens and
  /// returns this rank's, in the order in which it gave its rows.
  std::function<at::Tensor(const at::Tensor& rows)> back;
};
/// Exchanges rows [R, C], counts[e] of them for expert e, expert after expert. Under autograd.
using ExpertExchange =
    std::function<Exchanged(const at::Tensor& rows, const std::vector<std::int64_t>& counts)>;

/// The experts [first, first + count) that this rank holds. All ranks hold as many, in rank order.
struct ExpertShare {
  int first = 0, count = 0;
  ExpertExchange exchange;
  /// Wraps the router's parameter, which every rank has whole (see LayerContext::use).
  std::function<at::Tensor(const at::Tensor& parameter)> router;
};

struct ExpertsSpec {
  FeedForwardSpec expert;  // of each; its name is ignored. The router's stddev is up's.
  int experts = 1, top_k = 1;
  double capacity_factor = 1.25;  // an expert takes factor top_k T / E choices of a sequence
  std::optional<ExpertShare> share = {};  // none: this rank holds all experts
};

struct Mixed {
  at::Tensor y;  // [B, T, C], fp32 (fp64 under fp64)
  /// The load-balancing loss, summed over tokens, under autograd. Each sequence adds T E sum_e f_e
  /// P_e, where f_e is the fraction of its choices that chose expert e, and P_e the mean
  /// probability of e (Switch, eq. 4). The value is B T if all experts are chosen equally often.
  at::Tensor balance;
};

/// Parameters "router.weight" [E, C] and, for each expert, "experts.3.up.weight" [hidden, C]
/// (gated: [2 hidden, C]) and "experts.3.down.weight" [C, hidden], with biases of those names.
/// Other ranks' experts are listed too, as tensors without elements (Part), so that the list of
/// parameters is the same on every rank. Backward gives them gradients along with this rank's own.
class Experts {
 public:
  virtual ~Experts() = default;
  /// x [B, T, C] in any floating type.
  virtual Mixed forward(const at::Tensor& x) = 0;
  virtual void append_parameters(std::vector<NamedTensor>& out) const = 0;
};

/// Throws ConfigError if the numbers do not fit.
void check_experts(const ExpertsSpec& spec);
/// Builds the experts from the linear layers of `layers`. Throws as check_experts() does.
std::unique_ptr<Experts> make_experts(const LayerFactory& layers, const LayerContext& context,
                                      const ExpertsSpec& spec);

/// Returns x, and gives the scalar `loss` a gradient in backward: tensor::loss_gradient(), which is
/// 1 unless losses are scaled. So backward adds it to the loss; the reported loss does not change.
at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss);

/// Counts of this thread's routers during a RoutingScope. Recomputed blocks count twice.
struct RoutingCounts {
  std::int64_t choices = 0, dropped = 0;  // `choices`: tokens times top_k
};
struct RoutingScope : tensor::ScopedValue<RoutingCounts*> {
  explicit RoutingScope(RoutingCounts& into);
};

}  // namespace trireme::inline v0::models
