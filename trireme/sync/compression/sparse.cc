// Top-k and random-k (Aji and Heafield 2017; Stich, Cordonnier, Jaggi 2018): a share of a bucket's
// elements is sent, the rest stays in the residual.
//
// Top-k: each rank chooses its largest, so values travel with their indices, by all_gather, and are
// added in rank order. Random-k: all ranks draw the same indices, so the values alone are reduced.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/kernel/philox.h"
#include "trireme/sync/compression/lossy_compressor.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

std::int64_t number_of(double share, std::int64_t count) {
  return std::min(std::max<std::int64_t>(std::llround(share * static_cast<double>(count)), 1),
                  count);
}

class TopK final : public LossyCompressor {
 public:
  TopK(comm::Communicator& world, double share, const std::vector<BucketShape>& buckets)
      : LossyCompressor(world, buckets), share_(share) {}

 private:
  void send(std::size_t bucket, at::Tensor local) override {
    at::Tensor& kept = add(bucket, local);
    const std::int64_t k = number_of(share_, kept.numel()), n = world_.size();
    const at::Tensor chosen = std::get<1>(kept.abs().topk(k, 0, true, /*sorted=*/false));
    const at::Tensor values = kept.index_select(0, chosen), indices = chosen.to(at::kInt),
                     all_values = at::empty({n * k}, kept.options()),
                     all_indices = at::empty({n * k}, kept.options().dtype(at::kInt));
    kept.index_fill_(0, chosen, 0);
    const auto gather = [&](const at::Tensor& in, const at::Tensor& out) {
      return world_.all_gather(tensor::to_buffer(in), tensor::to_buffer(out),
                               {.label = label_of(bucket)});
    };
    const std::vector<Work> works = {gather(values, all_values), gather(indices, all_indices)};
    sent_ += k * 8;
    after(Work::all(works), [local, values, indices, all_values, all_indices, k, n] {
      local.zero_();
      for (std::int64_t rank = 0; rank < n; ++rank)  // a rank's indices are distinct
        local.index_add_(0, all_indices.narrow(0, rank * k, k), all_values.narrow(0, rank * k, k));
    });
  }

  const double share_;
};

class RandomK final : public LossyCompressor {
 public:
  RandomK(comm::Communicator& world, double share, std::uint64_t seed,
          const std::vector<BucketShape>& buckets)
      : LossyCompressor(world, buckets), share_(share), seed_(seed) {}

 private:
  void send(std::size_t bucket, at::Tensor local) override {
    at::Tensor& kept = add(bucket, local);
    const at::Tensor indices = indices_of(bucket, kept.numel()).to(kept.device()),
                     values = kept.index_select(0, indices);
    kept.index_fill_(0, indices, 0);
    sent_ += values.numel() * 4;
    after(world_.all_reduce(tensor::to_buffer(values), ReduceOp::Sum, {.label = label_of(bucket)}),
          [local, indices, values] { local.zero_().index_copy_(0, indices, values); });
  }

  // One element of each of k ranges of almost equal length, so k ascending indices. A function of
  // (seed, bucket, number of the step), so the same on all ranks.
  at::Tensor indices_of(std::size_t bucket, std::int64_t count) {
    const std::uint64_t stream =
        (static_cast<std::uint64_t>(bucket) << 32) + static_cast<std::uint64_t>(steps());
    const std::int64_t k = number_of(share_, count);
    const auto begin_of = [&](std::int64_t range) {
      return range * (count / k) + std::min(range, count % k);
    };
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint64_t word =
          kernel::philox(seed_, stream, static_cast<std::uint64_t>(i) / 4)[i % 4];
      const std::int64_t begin = begin_of(i), length = begin_of(i + 1) - begin;
      drawn[i] =
          begin + static_cast<std::int64_t>((static_cast<unsigned __int128>(word) * length) >> 32);
    }
    return at::tensor(drawn, at::kLong);
  }

  const double share_;
  const std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Compressor> make_top_k_compressor(comm::Communicator& world, double share,
                                                  std::vector<BucketShape> buckets) {
  for (const BucketShape& bucket : buckets)
    if (bucket.count - 1 > std::numeric_limits<std::int32_t>::max())
      throw ConfigError("comm.compression = \"topk\" with a parameter of more than 2^31 elements",
                        {.operation = "config",
                         .label = "comm.compression",
                         .advice = "Use randomk, powersgd, onebit or bf16: topk sends indices of "
                                   "32 bits."});
  return std::make_unique<TopK>(world, share, buckets);
}

std::unique_ptr<Compressor> make_random_k_compressor(comm::Communicator& world, double share,
                                                     std::uint64_t seed,
                                                     std::vector<BucketShape> buckets) {
  return std::make_unique<RandomK>(world, share, seed, buckets);
}

}  // namespace trireme::inline v0::parallel
