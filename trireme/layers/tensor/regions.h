// Begin and end of a tensor-parallel region of a model, under autograd: the pairs f and g of
// Shoeybi et al. 2019 ("Megatron-LM", arXiv:1909.08053), and of Korthikanti et al. 2022 ("Reducing
// activation recomputation", arXiv:2205.05198), who cut the values between along the sequence.
//
// Each is a blocking collective of the group's ranks, in forward or in backward or in both; all
// ranks build the same graph. 16-bit values are summed in fp32. With one rank they do nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0::parallel {

/// x; its gradient is the sum of all ranks' gradients (f).
at::Tensor enter_cut(const at::Tensor& x, comm::Communicator& group);
/// The sum of all ranks' x; its gradient is passed on (g).
at::Tensor leave_cut(const at::Tensor& x, comm::Communicator& group);
/// All ranks' x [B, T/N, C] concatenated: [B, T, C]; its gradient is summed, and cut again.
at::Tensor gather_sequence(const at::Tensor& x, comm::Communicator& group);
/// This rank's [B, T/N, C] of the sum of all ranks' x [B, T, C]; its gradient is gathered.
at::Tensor scatter_sum(const at::Tensor& x, comm::Communicator& group);
/// All ranks' x [..., V/N] concatenated. Without autograd.
at::Tensor gather_last(const at::Tensor& x, std::int64_t whole, comm::Communicator& group);

/// Marks the result of a layer, in its graph, as this rank's columns of logits.
void mark_cut_logits(const at::Tensor& own);
/// Whether `x` was computed from a tensor that is marked so, and has as many columns.
bool comes_from_cut_logits(const at::Tensor& x);

/// cross_entropy_sum (tensor/functions/functions.h) of logits [..., V] that are cut among the ranks
/// along the last dim: this rank has columns begin ... begin + logits.size(-1) - 1 of `whole`.
/// Logits are not sent, only three numbers per token. The same scalar on every rank.
at::Tensor cut_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets,
                                 std::int64_t begin, std::int64_t whole, comm::Communicator& group);

}  // namespace trireme::inline v0::parallel
