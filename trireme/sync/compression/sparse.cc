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
#include "trireme/sync/compression/compressor.h"
#include "trireme/sync/compression/residual.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

std::int64_t number_of(double share, std::int64_t count) {
  return std::min(std::max<std::int64_t>(std::llround(share * static_cast<double>(count)), 1),
                  count);
}

class TopK final : public Compressor {
 public:
  TopK(comm::Communicator& world, double share, std::vector<BucketShape> buckets)
      : world_(world), share_(share), residuals_(buckets) {}

  void launch(std::size_t bucket, at::Tensor local) override {
    at::Tensor& kept = residuals_.add(bucket, local);
    const std::int64_t k = number_of(share_, kept.numel()), n = world_.size();
    const at::Tensor chosen = std::get<1>(kept.abs().topk(k, 0, true, /*sorted=*/false));
    Open open{local,
              kept.index_select(0, chosen),
              chosen.to(at::kInt),
              at::empty({n * k}, kept.options()),
              at::empty({n * k}, kept.options().dtype(at::kInt)),
              {},
              {}};
    kept.index_fill_(0, chosen, 0);
    const std::string label = "bucket " + std::to_string(bucket);
    const auto gather = [&](const at::Tensor& in, const at::Tensor& out) {
      return world_.all_gather(tensor::to_buffer(in), tensor::to_buffer(out), {.label = label});
    };
    open.values_work = gather(open.values, open.all_values);
    open.indices_work = gather(open.indices, open.all_indices);
    sent_ += k * 8;
    open_.push_back(std::move(open));
  }

  void finish() override {
    for (Open& one : open_) {
      one.values_work.wait();
      one.indices_work.wait();
      one.local.zero_();
      const std::int64_t k = one.values.numel();  // of one rank, at different indices
      for (std::int64_t rank = 0; rank < world_.size(); ++rank)
        one.local.index_add_(0, one.all_indices.narrow(0, rank * k, k),
                             one.all_values.narrow(0, rank * k, k));
    }
    open_.clear();
  }

  void drop() override { residuals_.clear(); }
  std::int64_t payload_bytes() const override { return sent_; }

 private:
  struct Open {
    at::Tensor local, values, indices, all_values, all_indices;
    Work values_work, indices_work;
  };
  comm::Communicator& world_;
  const double share_;
  Residuals residuals_;
  std::vector<Open> open_;
  std::int64_t sent_ = 0;
};

class RandomK final : public Compressor {
 public:
  RandomK(comm::Communicator& world, double share, std::uint64_t seed,
          std::vector<BucketShape> buckets)
      : world_(world), share_(share), seed_(seed), residuals_(buckets), draws_(buckets.size(), 0) {}

  void launch(std::size_t bucket, at::Tensor local) override {
    at::Tensor& kept = residuals_.add(bucket, local);
    Open open{local, indices(bucket, kept.numel()).to(kept.device()), {}, {}};
    open.values = kept.index_select(0, open.indices);
    kept.index_fill_(0, open.indices, 0);
    open.work = world_.all_reduce(tensor::to_buffer(open.values), ReduceOp::Sum,
                                  {.label = "bucket " + std::to_string(bucket)});
    sent_ += open.values.numel() * 4;
    open_.push_back(std::move(open));
  }

  void finish() override {
    for (Open& one : open_) {
      one.work.wait();
      one.local.zero_();
      one.local.index_copy_(0, one.indices, one.values);
    }
    open_.clear();
  }

  void drop() override { residuals_.clear(); }
  std::int64_t payload_bytes() const override { return sent_; }

 private:
  struct Open {
    at::Tensor local, indices, values;
    Work work;
  };

  // Sorted and distinct, a function of (seed, bucket, number of draws), so the same on all ranks.
  // Drawn with replacement, so slightly fewer than share x count.
  at::Tensor indices(std::size_t bucket, std::int64_t count) {
    const std::uint64_t stream = (static_cast<std::uint64_t>(bucket) << 32) + draws_[bucket]++;
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(number_of(share_, count)));
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const kernel::PhiloxBlock block = kernel::philox(seed_, stream, i / 4);
      drawn[i] = static_cast<std::int64_t>(
          (static_cast<unsigned __int128>(block[i % 4]) * static_cast<std::uint64_t>(count)) >> 32);
    }
    std::sort(drawn.begin(), drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
    return at::tensor(drawn, at::kLong);
  }

  comm::Communicator& world_;
  const double share_;
  const std::uint64_t seed_;
  Residuals residuals_;
  std::vector<std::uint32_t> draws_;
  std::vector<Open> open_;
  std::int64_t sent_ = 0;
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
  return std::make_unique<TopK>(world, share, std::move(buckets));
}

std::unique_ptr<Compressor> make_random_k_compressor(comm::Communicator& world, double share,
                                                     std::uint64_t seed,
                                                     std::vector<BucketShape> buckets) {
  return std::make_unique<RandomK>(world, share, seed, std::move(buckets));
}

}  // namespace trireme::inline v0::parallel
