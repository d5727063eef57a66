// 16-bit floats on the wire. Each rank rounds its sum once to the wire's type; the reduction adds
// in fp32 and rounds the whole sum once (docs/algorithms.md). This halves the bytes, except if an
// algorithm forwards partial sums, which are fp32 (auto chooses none that does). No residual.
#include <ATen/Functions.h>

#include "trireme/sync/compression/compressor.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

class CastCompressor final : public Compressor {
 public:
  CastCompressor(comm::Communicator& world, DType wire, std::vector<BucketShape> buckets)
      : world_(world) {
    for (const BucketShape& bucket : buckets) {
      wires_.push_back(
          world_
              .allocate(static_cast<std::size_t>(bucket.count) * size_of(wire), bucket.device)

              .buffer(0, static_cast<std::size_t>(bucket.count), wire));
    }
  }

  void launch(std::size_t bucket, at::Tensor local) override {
    const Buffer& wire = wires_[bucket];
    tensor::view_of(wire).copy_(local);
    sent_ += static_cast<std::int64_t>(wire.bytes());
    const std::string label = "bucket " + std::to_string(bucket);
    open_.push_back(
        {bucket, std::move(local), world_.all_reduce(wire, ReduceOp::Sum, {.label = label})});
  }

  void finish() override {
    for (const Open& one : open_) {
      one.work.wait();
      at::Tensor(one.local).copy_(tensor::view_of(wires_[one.bucket]));
    }
    open_.clear();
  }

  void drop() override {}
  std::int64_t payload_bytes() const override { return sent_; }

 private:
  struct Open {
    std::size_t bucket;
    at::Tensor local;
    Work work;
  };
  comm::Communicator& world_;
  std::vector<Buffer> wires_;  // in arenas: reduced without a copy
  std::vector<Open> open_;
  std::int64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<Compressor> make_cast_compressor(comm::Communicator& world, DType wire,
                                                 std::vector<BucketShape> buckets) {
  return std::make_unique<CastCompressor>(world, wire, std::move(buckets));
}

}  // namespace trireme::inline v0::parallel
