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
      : Compressor(world) {
    for (const BucketShape& bucket : buckets) {
      const auto count = static_cast<std::size_t>(bucket.count);
      wires_.push_back(
          world_.allocate(count * size_of(wire), bucket.device).buffer(0, count, wire));
    }
  }

 private:
  void send(std::size_t bucket, at::Tensor local) override {
    const Buffer& wire = wires_[bucket];
    tensor::view_of(wire).copy_(local);
    sent_ += static_cast<std::int64_t>(wire.bytes());
    after(world_.all_reduce(wire, ReduceOp::Sum, {.label = label_of(bucket)}),
          [local, wire] { local.copy_(tensor::view_of(wire)); });
  }

  void forget() override {}

  std::vector<Buffer> wires_;  // in arenas: reduced without a copy
};

}  // namespace

std::unique_ptr<Compressor> make_cast_compressor(comm::Communicator& world, DType wire,
                                                 std::vector<BucketShape> buckets) {
  return std::make_unique<CastCompressor>(world, wire, std::move(buckets));
}

}  // namespace trireme::inline v0::parallel
