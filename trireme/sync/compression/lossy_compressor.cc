#include "trireme/sync/compression/lossy_compressor.h"

#include <ATen/Functions.h>

#include <string>

namespace trireme::inline v0::parallel {

LossyCompressor::LossyCompressor(comm::Communicator& world, const std::vector<BucketShape>& buckets)
    : Compressor(world), buckets_(buckets) {
  for (const BucketShape& bucket : buckets_) {
    residuals_.push_back(at::zeros({bucket.count}, floats_on(bucket.device)));
    auto& gaps = gaps_.emplace_back();
    std::int64_t end = 0;
    const auto gap_before = [&](std::int64_t begin) {
      if (begin > end) gaps.emplace_back(end, begin - end);
    };
    for (const BucketShape::Parameter& part : bucket.parts) {
      gap_before(part.offset);
      end = part.offset + part.count;
    }
    gap_before(bucket.count);
  }
}

// In the gaps `local` has what an earlier step left there. It is no gradient, and not in checkpoints.
at::Tensor& LossyCompressor::add(std::size_t bucket, const at::Tensor& local) {
  at::Tensor& kept = residuals_[bucket].add_(local);
  for (const auto& [begin, count] : gaps_[bucket]) kept.narrow(0, begin, count).zero_();
  return kept;
}

void LossyCompressor::forget() {
  for (at::Tensor& one : residuals_) one.zero_();
}

std::vector<NamedShard> LossyCompressor::state() {
  std::vector<NamedShard> shards;
  const std::int64_t rank = world_.rank(), ranks = world_.size();
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    for (const BucketShape::Parameter& part : buckets_[i].parts)
      shards.push_back({.name = std::string(kCompressionPrefix) + "residual/" + part.name,
                        .shape = {ranks, part.count},
                        .begin = rank * part.count,
                        .end = (rank + 1) * part.count,
                        .local = residuals_[i].narrow(0, part.offset, part.count),
                        .optional = true,
                        .row_of_rank = true});
  return shards;
}

}  // namespace trireme::inline v0::parallel
