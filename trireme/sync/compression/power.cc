// PowerSGD (Vogels, Karimireddy, Jaggi 2019, algorithm 2): a matrix M of gradients [n, m] is sent
// as P [n, r] and Q [m, r], one step of subspace iteration from the last step's Q:
//
//     P = M Q, all_reduce, orthonormalise
//     Q = M^T P, all_reduce; the sum is P Q^T
//
// The first `exact_steps` are not compressed (PyTorch's hook: start_powerSGD_iter, 1,000 by
// default): early gradients change most, and Adam's second moments are learned from exact ones.
// Vectors, and matrices that would not shrink, are sent uncompressed with P. The second of a
// bucket's two reductions starts in finish(), since all ranks must submit them in one order.
#include <ATen/Functions.h>

#include <cmath>
#include <utility>

#include "trireme/sync/compression/lossy_compressor.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::parallel {
namespace {

// Modified Gram-Schmidt over the columns of p [n, r]; a column that is zero stays zero. In fp64,
// with plain loops: every rank must get the same bits from the same input.
void orthonormalise(at::Tensor& p) {
  const at::Tensor columns = p.t().to(at::kCPU, at::kDouble).contiguous();
  const std::int64_t r = columns.size(0), n = columns.size(1);
  double* data = columns.mutable_data_ptr<double>();
  const auto dot = [&](std::int64_t a, std::int64_t b) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += data[a * n + i] * data[b * n + i];
    return sum;
  };
  for (std::int64_t a = 0; a < r; ++a) {
    const double before = std::sqrt(dot(a, a));
    for (std::int64_t b = 0; b < a; ++b) {
      const double along = dot(a, b);
      for (std::int64_t i = 0; i < n; ++i) data[a * n + i] -= along * data[b * n + i];
    }
    // The remainder of a column that depends on the others is rounding noise.
    const double length = std::sqrt(dot(a, a));
    const double scale = length > 1e-6 * before && length > 0 ? 1 / length : 0;
    for (std::int64_t i = 0; i < n; ++i) data[a * n + i] *= scale;
  }
  p.copy_(columns.t());
}

class Power final : public LossyCompressor {
 public:
  Power(comm::Communicator& world, int rank, std::int64_t exact_steps, std::uint64_t seed,
        const std::vector<BucketShape>& buckets)
      : LossyCompressor(world, buckets), exact_steps_(exact_steps), rank_(rank) {
    for (const BucketShape& bucket : buckets) {
      Plan& plan = plans_.emplace_back();
      for (const BucketShape::Parameter& part : bucket.parts) {
        const std::int64_t n = part.rows, m = n > 0 ? part.count / n : 0;
        if (n < 2 || m < 2 || (n + m) * rank >= n * m) {
          plan.plain.push_back({part.offset, part.count});
          continue;
        }
        at::Tensor q = at::empty({m, rank}, at::kFloat);
        tensor::fill_normal(q, seed, "powersgd/" + part.name, 0, 1);
        plan.matrices.push_back({part.name, part.offset, n, m, plan.first, plan.second,
                                 q.to(tensor::at_device(bucket.device))});
        plan.first += n * rank;
        plan.second += m * rank;
      }
      for (Range& range : plan.plain)
        range.at = std::exchange(plan.first, plan.first + range.count);
    }
  }

  std::vector<NamedShard> state() override {
    std::vector<NamedShard> shards = LossyCompressor::state();
    const std::string prefix =
        std::string(kCompressionPrefix) + "powersgd-" + std::to_string(rank_) + "/";
    for (const Plan& plan : plans_) {
      for (const Matrix& matrix : plan.matrices) {
        shards.push_back(tensor::whole_shard(prefix + matrix.name, matrix.q));
        shards.back().optional = true;
      }
    }
    return shards;
  }

 private:
  void send(std::size_t bucket, at::Tensor local) override {
    const Plan& plan = plans_[bucket];
    at::Tensor& kept = add(bucket, local);
    if (steps() < exact_steps_) {  // also what another compressor left, before a resume
      const at::Tensor sum = kept.clone();
      kept.zero_();
      after(reduce(sum, bucket, "exact"), [local, sum] { local.copy_(sum); });
      return;
    }
    const at::Tensor first = at::empty({plan.first}, local.options());
    for (const Matrix& matrix : plan.matrices)
      p_of(first, matrix).copy_(at::mm(view(kept, matrix), matrix.q));
    for (const Range& range : plan.plain)
      first.narrow(0, range.at, range.count).copy_(kept.narrow(0, range.offset, range.count));
    after(reduce(first, bucket, "P"),
          [this, bucket, local, first] { second_round(bucket, local, first); });
  }

  struct Range {
    std::int64_t offset, count;
    std::int64_t at = 0;  // in the first reduction
  };
  struct Matrix {
    std::string name;
    std::int64_t offset, n, m;
    std::int64_t p_at, q_at;  // in the two reductions
    at::Tensor q;             // [m, r], from the step before
  };
  struct Plan {
    std::vector<Matrix> matrices;
    std::vector<Range> plain;
    std::int64_t first = 0, second = 0;  // elements of the two reductions
  };

  static at::Tensor view(const at::Tensor& flat, const Matrix& matrix) {
    return flat.narrow(0, matrix.offset, matrix.n * matrix.m).view({matrix.n, matrix.m});
  }

  // A matrix's P and Q in what is reduced.
  at::Tensor p_of(const at::Tensor& first, const Matrix& matrix) const {
    return first.narrow(0, matrix.p_at, matrix.n * rank_).view({matrix.n, rank_});
  }
  at::Tensor q_of(const at::Tensor& second, const Matrix& matrix) const {
    return second.narrow(0, matrix.q_at, matrix.m * rank_).view({matrix.m, rank_});
  }

  Work reduce(const at::Tensor& tensor, std::size_t bucket, const char* what) {
    sent_ += tensor.numel() * 4;
    if (tensor.numel() == 0) return {};
    return world_.all_reduce(tensor::to_buffer(tensor), ReduceOp::Sum,
                             {.label = label_of(bucket) + " " + what});
  }

  void second_round(std::size_t bucket, const at::Tensor& local, const at::Tensor& first) {
    const Plan& plan = plans_[bucket];
    const at::Tensor& kept = residual(bucket);
    const at::Tensor second = at::empty({plan.second}, kept.options());
    for (const Matrix& matrix : plan.matrices) {
      at::Tensor p = p_of(first, matrix);
      orthonormalise(p);
      q_of(second, matrix).copy_(at::mm(view(kept, matrix).t(), p));
    }
    after(reduce(second, bucket, "Q"),
          [this, bucket, local, first, second] { rebuild(bucket, local, first, second); });
  }

  void rebuild(std::size_t bucket, const at::Tensor& local, const at::Tensor& first,
               const at::Tensor& second) {
    Plan& plan = plans_[bucket];
    const at::Tensor& kept = residual(bucket);
    const double ranks = world_.size();
    for (Matrix& matrix : plan.matrices) {
      const at::Tensor q = q_of(second, matrix), sum = at::mm(p_of(first, matrix), q.t());
      view(local, matrix).copy_(sum);
      view(kept, matrix).sub_(sum, 1 / ranks);  // every rank keeps its own difference from the mean
      // A column that became zero (no gradient this time) or is not finite would stay so for ever.
      const at::Tensor size = q.abs().sum(0, /*keepdim=*/true);
      matrix.q.copy_(at::where((size > 0).logical_and(size.isfinite()), q, matrix.q));
    }
    for (const Range& range : plan.plain) {
      local.narrow(0, range.offset, range.count).copy_(first.narrow(0, range.at, range.count));
      kept.narrow(0, range.offset, range.count).zero_();
    }
  }

  const std::int64_t exact_steps_;
  const int rank_;
  std::vector<Plan> plans_;
};

}  // namespace

std::unique_ptr<Compressor> make_power_compressor(comm::Communicator& world, int rank,
                                                  std::int64_t exact_steps, std::uint64_t seed,
                                                  std::vector<BucketShape> buckets) {
  return std::make_unique<Power>(world, rank, exact_steps, seed, buckets);
}

}  // namespace trireme::inline v0::parallel
