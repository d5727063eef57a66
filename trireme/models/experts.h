// A mixture of experts in the place of a transformer's MLP (Shazeer et al. 2017, arXiv:1701.06538;
// GShard, Lepikhin et al. 2020, arXiv:2006.16668; Switch, Fedus et al. 2021, arXiv:2101.03961): a
// router gives each token probabilities over the experts, its top_k most probable ones compute it
// (models/routing.h says which have a place), and their outputs are added up, each times its
// probability (top_k > 1: divided by the sum of the chosen ones'). A choice without a place adds
// nothing.
//
// Where a group of ranks shares the experts, each has some, and tokens travel: an ExpertExchange
// moves them (parallel/expert/). Router and probabilities are fp32 (fp64 under fp64). One thread at
// a time.
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

namespace trireme {
inline namespace v0 {
namespace models {

/// Rows for the experts of this rank: counts[i] for its i-th, one behind the other, each expert's
/// in the order of the ranks that they come from.
struct Exchanged {
  at::Tensor rows;
  std::vector<std::int64_t> counts;
  /// What the experts made of `rows`, row by row, back to where the rows came from, in their order.
  std::function<at::Tensor(const at::Tensor& rows)> back;
};
/// Of rows [R, C], counts[e] for expert e, one behind the other. Under autograd.
using ExpertExchange =
    std::function<Exchanged(const at::Tensor& rows, const std::vector<std::int64_t>& counts)>;

/// Where a group of ranks shares the experts: what this rank has of them, all ranks as many, in
/// rank order.
struct ExpertShare {
  int first = 0, count = 0;
  ExpertExchange exchange;
  /// The router, which all ranks have, as it is used (as LayerContext::use).
  std::function<at::Tensor(const at::Tensor& parameter)> router;
};

struct ExpertsSpec {
  FeedForwardSpec expert;  // each one; its name is not asked for. The router's stddev is up's.
  int experts = 1, top_k = 1;
  double capacity_factor = 1.25;  // an expert takes factor top_k T / E choices of a sequence
  std::optional<ExpertShare> share = {};  // none: this rank has all of them
};

struct Mixed {
  at::Tensor y;  // [B, T, C], fp32 (fp64 under fp64)
  /// The loss that grows where some experts are chosen more than others, summed over tokens under
  /// autograd: of each sequence T E sum_e f_e P_e, with f_e the part of its choices that are e and
  /// P_e its mean probability (Switch, eq. 4). B T where all are chosen alike.
  at::Tensor balance;
};

/// Parameters "router.weight" [E, C] and, of every expert, "experts.3.up.weight" [hidden, C]
/// (gated: [2 hidden, C]) and "experts.3.down.weight" [C, hidden], with biases of those names.
/// Those of other ranks' experts are here, too, without an element (Part), so that a list of
/// parameters is the same everywhere; backward gives them a gradient when it gives this rank's one.
class Experts {
 public:
  virtual ~Experts() = default;
  /// x [B, T, C] in any floating type.
  virtual Mixed forward(const at::Tensor& x) = 0;
  virtual void append_parameters(std::vector<NamedTensor>& out) const = 0;
};

/// ConfigError where the numbers do not fit.
void check_experts(const ExpertsSpec& spec);
/// Out of `layers`' linear layers. Throws as check_experts() does.
std::unique_ptr<Experts> make_experts(const LayerFactory& layers, const LayerContext& context,
                                      const ExpertsSpec& spec);

/// x, through which `loss`, a scalar, gets a gradient of tensor::loss_gradient(), 1 unless losses
/// are scaled, in backward, as if it had been added to the sum that backward begins at. Its value
/// shows nowhere.
at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss);

/// What routers did while a RoutingScope of their thread stood; recomputed blocks count twice.
struct RoutingCounts {
  std::int64_t choices = 0, dropped = 0;  // tokens times top_k, and those of them without a place
};
class RoutingScope {
 public:
  explicit RoutingScope(RoutingCounts& into);
  ~RoutingScope();
  RoutingScope(const RoutingScope&) = delete;

 private:
  RoutingCounts* outer_;
};

}  // namespace models
}  // namespace v0
}  // namespace trireme
