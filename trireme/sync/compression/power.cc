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

#include "trireme/sync/compression/compressor.h"
#include "trireme/sync/compression/residual.h"
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

class Power final : public Compressor {
 public:
  Power(comm::Communicator& world, int rank, std::int64_t exact_steps, std::uint64_t seed,
        std::vector<BucketShape> buckets)
      : world_(world), exact_steps_(exact_steps), residuals_(buckets) {
    for (const BucketShape& bucket : buckets) {
      Plan& plan = plans_.emplace_back();
      for (const BucketShape::Part& part : bucket.parts) {
        const std::int64_t n = part.rows, m = n > 0 ? part.count / n : 0;
        if (n < 2 || m < 2 || (n + m) * rank >= n * m) {
          plan.plain.push_back({part.offset, part.count});
          plan.first += part.count;
          continue;
        }
        at::Tensor q = at::empty({m, rank}, at::kFloat);
        tensor::fill_normal(q, seed, "powersgd/" + part.name, 0, 1);
        plan.matrices.push_back({part.offset, n, m, q.to(tensor::at_device(bucket.device))});
        plan.first += n * rank;
        plan.second += m * rank;
      }
    }
    rank_ = rank;
  }

  void launch(std::size_t bucket, at::Tensor local) override {
    Plan& plan = plans_[bucket];
    Open open{bucket, local, at::empty({plan.first}, local.options()), {}, {}};
    if (plan.launched++ < exact_steps_) {
      open.exact = true;
      open.first = local.clone();
      open.work = reduce(open.first, bucket, "exact");
      open_.push_back(std::move(open));
      return;
    }
    const at::Tensor& kept = residuals_.add(bucket, local);
    std::int64_t at = 0;
    for (const Matrix& matrix : plan.matrices) {
      at::Tensor p = open.first.narrow(0, at, matrix.n * rank_).view({matrix.n, rank_});
      p.copy_(at::mm(view(kept, matrix), matrix.q));
      at += matrix.n * rank_;
    }
    for (const Range& range : plan.plain) {
      open.first.narrow(0, at, range.count).copy_(local.narrow(0, range.offset, range.count));
      at += range.count;
    }
    open.work = reduce(open.first, bucket, "P");
    open_.push_back(std::move(open));
  }

  void finish() override {
    for (Open& one : open_) second_round(one);
    for (Open& one : open_) rebuild(one);
    open_.clear();
  }

  void drop() override { residuals_.clear(); }
  std::int64_t payload_bytes() const override { return sent_; }

 private:
  struct Range {
    std::int64_t offset, count;
  };
  struct Matrix {
    std::int64_t offset, n, m;
    at::Tensor q;  // [m, r], from the step before
  };
  struct Plan {
    std::vector<Matrix> matrices;
    std::vector<Range> plain;
    std::int64_t first = 0, second = 0;  // elements of the two reductions
    std::int64_t launched = 0;
  };
  struct Open {
    std::size_t bucket;
    at::Tensor local, first, second;
    Work work;
    bool exact = false;  // one of the first steps: not compressed
  };

  static at::Tensor view(const at::Tensor& flat, const Matrix& matrix) {
    return flat.narrow(0, matrix.offset, matrix.n * matrix.m).view({matrix.n, matrix.m});
  }

  Work reduce(const at::Tensor& tensor, std::size_t bucket, const char* what) {
    sent_ += tensor.numel() * 4;
    if (tensor.numel() == 0) return {};
    return world_.all_reduce(tensor::to_buffer(tensor), ReduceOp::Sum,
                             {.label = "bucket " + std::to_string(bucket) + " " + what});
  }

  void second_round(Open& one) {
    one.work.wait();
    if (one.exact) {
      one.local.copy_(one.first);
      return;
    }
    Plan& plan = plans_[one.bucket];
    const at::Tensor& kept = residuals_.of(one.bucket);
    one.second = at::empty({plan.second}, kept.options());
    std::int64_t from = 0, to = 0;
    for (const Matrix& matrix : plan.matrices) {
      at::Tensor p = one.first.narrow(0, from, matrix.n * rank_).view({matrix.n, rank_});
      orthonormalise(p);
      at::Tensor q = one.second.narrow(0, to, matrix.m * rank_).view({matrix.m, rank_});
      q.copy_(at::mm(view(kept, matrix).t(), p));
      from += matrix.n * rank_;
      to += matrix.m * rank_;
    }
    one.work = reduce(one.second, one.bucket, "Q");
  }

  void rebuild(Open& one) {
    if (one.exact) return;
    one.work.wait();
    Plan& plan = plans_[one.bucket];
    at::Tensor& kept = residuals_.of(one.bucket);
    const double ranks = world_.size();
    std::int64_t from = 0, to = 0;
    for (Matrix& matrix : plan.matrices) {
      const at::Tensor p = one.first.narrow(0, from, matrix.n * rank_).view({matrix.n, rank_});
      const at::Tensor q = one.second.narrow(0, to, matrix.m * rank_).view({matrix.m, rank_});
      const at::Tensor sum = at::mm(p, q.t());
      view(one.local, matrix).copy_(sum);
      view(kept, matrix).sub_(sum, 1 / ranks);  // every rank keeps its own difference from the mean
      // A column that became zero (no gradient this time) would stay zero for ever.
      matrix.q.copy_(at::where(q.abs().sum(0, /*keepdim=*/true) > 0, q, matrix.q));
      from += matrix.n * rank_;
      to += matrix.m * rank_;
    }
    for (const Range& range : plan.plain) {
      one.local.narrow(0, range.offset, range.count).copy_(one.first.narrow(0, from, range.count));
      kept.narrow(0, range.offset, range.count).zero_();
      from += range.count;
    }
  }

  comm::Communicator& world_;
  const std::int64_t exact_steps_;
  int rank_ = 1;
  Residuals residuals_;
  std::vector<Plan> plans_;
  std::vector<Open> open_;
  std::int64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<Compressor> make_power_compressor(comm::Communicator& world, int rank,
                                                  std::int64_t exact_steps, std::uint64_t seed,
                                                  std::vector<BucketShape> buckets) {
  return std::make_unique<Power>(world, rank, exact_steps, seed, std::move(buckets));
}

}  // namespace trireme::inline v0::parallel
