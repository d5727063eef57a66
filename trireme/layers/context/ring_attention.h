// Ring attention (Liu et al. 2023, "Ring Attention with Blockwise Transformers", arXiv:2310.01889):
// attention over sequences whose positions are shared among ranks (positions.h). Queries stay in
// place. Keys and values go around the ring of ranks. Each rank adds its queries' result for the
// part that it has (tensor/functions/partial_attention.h) while the next part is being sent. In
// backward they go around once more together with their gradients, which end at their owner.
//
//     4 ranks, causal: what rank 1 (chunks 1 and 6 of 0 ... 7) computes in hop 0, 1, 2, 3
//     keys of rank         1 (1, 6)      0 (0, 7)      3 (3, 4)      2 (2, 5)
//     query chunk 1        diagonal      0             -             -
//     query chunk 6        1, diagonal   0             3, 4          2, 5
//
// After hop 0 a rank computes two blocks of chunk x chunk in every hop. It sends keys and values
// [B, T/N, 2C] N - 1 times in forward, as often in backward, and N times their gradients in fp32 or
// wider.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "trireme/comm/communicator.h"
#include "trireme/tensor/functions/partial_attention.h"

namespace trireme::inline v0::parallel {

/// Reported before this rank's queries meet `owner`'s keys; `trireme show context` draws these.
struct RingHop {
  int hop = 0, owner = 0;
  tensor::Sight sight;
  bool backward = false;
};
using OnRingHop = std::function<void(const RingHop&)>;

/// Attention of `heads` heads, scaled by 1/sqrt(C/heads), under autograd: qkv [B, T/N, 3C] (query,
/// key, value side by side; fp64, fp32, or bf16 and fp16, which are summed in fp32) of this rank's
/// positions of sequences of T -> [B, T/N, C]. Causal, or every position sees all T; no other
/// masks. All ranks of `group` call it in the same order with one shape. With one rank it is
/// tensor::attention. Throws the communicator's error. `group` and `on_hop` outlive the graph.
at::Tensor ring_attention(const at::Tensor& qkv, std::int64_t heads, bool causal,
                          comm::Communicator& group, const OnRingHop* on_hop = nullptr);

}  // namespace trireme::inline v0::parallel
