#include "trireme/layers/context/ring_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/partial_attention.h"
#include "trireme/tensor/functions/second_derivative.h"

namespace trireme::inline v0::parallel {
namespace {

using comm::Communicator;
using tensor::Columns;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr std::uint32_t kKeysTag = 1, kGradientsTag = 2;

struct Ring {
  Communicator& ranks;
  const OnRingHop* on_hop = nullptr;

  int size() const { return ranks.size(); }
  /// The rank whose keys and values are here in hop `hop`.
  int owner(int hop) const { return (ranks.rank() - hop + size()) % size(); }
  Work send_on(const at::Tensor& tensor, std::uint32_t tag) const {
    return ranks.send(tensor::to_buffer(tensor), (ranks.rank() + 1) % size(), tag,
                      {.label = "ring attention"});
  }
  Work take(const at::Tensor& tensor, std::uint32_t tag) const {
    return ranks.recv(tensor::to_buffer(tensor), (ranks.rank() + size() - 1) % size(), tag,
                      {.label = "ring attention"});
  }
  // The first half of a rank's positions comes before all positions of every rank with a higher
  // number, and the second half after them.
  tensor::Sight sight(int hop, std::int64_t length, bool causal) const {
    const int from = owner(hop);
    if (!causal) return {.keys = length};
    if (from == ranks.rank()) return {.keys = length, .causal = true};
    if (from < ranks.rank()) return {.keys = length / 2};
    return {.first_query = length / 2, .keys = length};
  }
};

// Keys and values going around the ring: `here` is used while the next ones arrive.
class Rotation {
 public:
  Rotation(const Ring& ring, at::Tensor own) : ring_(ring), here_(std::move(own)) {}
  const at::Tensor& here() const { return here_; }
  void start_next() {
    next_ = at::empty_like(here_);
    works_ = {ring_.take(next_, kKeysTag), ring_.send_on(here_, kKeysTag)};
  }
  void next() {
    tensor::wait_for(Work::all(works_), next_.device());
    here_ = std::exchange(next_, {});
  }

 private:
  const Ring& ring_;
  at::Tensor here_, next_;
  std::vector<Work> works_;
};

// Calls call(hop, sight, keys and values [B, S, 2C]) for the keys and values of every rank.
template <class Call>
void around(const Ring& ring, const at::Tensor& qkv, bool causal, bool backward, Call call) {
  const std::int64_t width = qkv.size(2) / 3;
  Rotation rotation(ring, qkv.narrow(2, width, 2 * width).contiguous());
  for (int hop = 0; hop < ring.size(); ++hop) {
    const bool more = hop + 1 < ring.size();
    if (more) rotation.start_next();
    const tensor::Sight sight = ring.sight(hop, qkv.size(1), causal);
    if (ring.on_hop != nullptr) (*ring.on_hop)({hop, ring.owner(hop), sight, backward});
    call(hop, sight, rotation.here());
    if (more) rotation.next();
  }
}

// The gradients of keys and values follow one hop behind; each rank adds to them and sends them on.
class GradientRotation {
 public:
  explicit GradientRotation(const Ring& ring) : ring_(ring) {}
  void expect(const at::Tensor& like) {
    arriving_ = at::empty_like(like);
    arrival_ = ring_.take(arriving_, kGradientsTag);
  }
  at::Tensor arrived() {
    tensor::wait_for(arrival_, arriving_.device());
    return std::exchange(arriving_, {});
  }
  void send_on(const at::Tensor& sum) {
    finish();  // the one before
    departing_ = sum;
    departure_ = ring_.send_on(departing_, kGradientsTag);
  }
  void finish() {
    if (departing_.defined()) tensor::wait_for(departure_, departing_.device());
  }

 private:
  const Ring& ring_;
  at::Tensor arriving_, departing_;
  Work arrival_, departure_;
};

class RingAttention : public torch::autograd::Function<RingAttention> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, std::int64_t heads,
                            bool causal, Communicator* group, const OnRingHop* on_hop) {
    const at::Tensor packed = qkv.contiguous();
    const std::int64_t width = packed.size(2) / 3;
    const Ring ring{*group, on_hop};
    tensor::PartialAttention attention({packed}, heads, width);
    around(ring, packed, causal, false,
           [&](int, const tensor::Sight& sight, const at::Tensor& part) {
             attention.add({part}, {part, width}, sight);
           });
    const at::Tensor output = attention.output();
    ctx->save_for_backward({packed, output, attention.logsumexp()});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    ctx->saved_data["on_hop"] = reinterpret_cast<std::int64_t>(on_hop);
    return output;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    tensor::refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &qkv = saved[0], &output = saved[1], &logsumexp = saved[2];
    const Ring ring{*reinterpret_cast<Communicator*>(ctx->saved_data["group"].toInt()),
                    reinterpret_cast<const OnRingHop*>(ctx->saved_data["on_hop"].toInt())};
    const std::int64_t width = qkv.size(2) / 3;
    tensor::PartialAttentionBackward attention({qkv}, ctx->saved_data["heads"].toInt(), output,
                                               logsumexp, gradients[0]);
    GradientRotation rotation(ring);
    const auto options = logsumexp.options();
    const auto add = [&](int hop, const tensor::Sight& sight, const at::Tensor& part) {
      const at::Tensor sum = at::zeros(part.sizes(), options);
      if (hop > 0) rotation.expect(sum);
      attention.add({part}, {part, width}, sight, {sum}, {sum, width});
      if (hop > 0) sum.add_(rotation.arrived());
      rotation.send_on(sum);
    };
    around(ring, qkv, ctx->saved_data["causal"].toBool(), true, add);
    rotation.expect(at::empty({qkv.size(0), qkv.size(1), 2 * width}, options));
    const at::Tensor own = rotation.arrived();
    rotation.finish();
    return {at::cat({attention.query_gradient(), own}, 2).to(qkv.scalar_type()), Variable(),
            Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& qkv, std::int64_t heads, bool causal,
                          Communicator& group, const OnRingHop* on_hop) {
  TRIREME_CHECK(qkv.dim() == 3);
  TRIREME_CHECK(qkv.size(2) % (3 * heads) == 0);
  if (group.size() == 1) return tensor::attention(qkv, heads, causal);
  TRIREME_CHECK(qkv.size(1) % 2 == 0);  // two chunks (positions.h)
  return RingAttention::apply(qkv, heads, causal, &group, on_hop);
}

}  // namespace trireme::inline v0::parallel
