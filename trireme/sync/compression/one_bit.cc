// 1-bit (Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent", 2014): sends only the sign
// of each element, and per chunk of 4,096 the mean of the non-negative and of the negative
// elements, which replace them: 520 bytes instead of 16,384. The difference stays in the residual.
#include <ATen/Functions.h>

#include "trireme/sync/compression/lossy_compressor.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr std::int64_t kChunk = 4096;

// The code of a bucket of C chunks: 2 C floats, and one bit for each element, set for a negative
// one. An element is the first float of its chunk, plus the second if its bit is set.
constexpr std::int64_t kMeans = 2 * sizeof(float), kBits = kChunk / 8;

std::int64_t chunks_of(std::int64_t count) { return (count + kChunk - 1) / kChunk; }

struct Code {
  std::int64_t chunks;
  at::Tensor means, bits;  // [C, 2]; [C, 512]

  Code(const at::Tensor& bytes, std::int64_t first, std::int64_t of_chunks) : chunks(of_chunks) {
    const Buffer all = tensor::to_buffer(bytes);
    const auto part = [&](std::int64_t begin, std::int64_t count, DType type) {
      Buffer one = all;
      one.data = static_cast<std::byte*>(all.data) + first + begin;
      one.count = static_cast<std::size_t>(count);
      one.dtype = type;
      return tensor::view_of(one);
    };
    means = part(0, 2 * chunks, DType::F32).view({chunks, 2});
    bits = part(kMeans * chunks, kBits * chunks, DType::U8).view({chunks, kBits});
  }

  // The elements that the code stands for, [count].
  at::Tensor decoded(std::int64_t count) const {
    // Multiplying copies the byte into all eight bytes of a word; byte k then keeps bit k.
    constexpr std::int64_t kOnes = 0x0101010101010101;
    constexpr auto kBitOfByte = static_cast<std::int64_t>(0x8040201008040201);
    const at::Tensor spread = bits.to(at::kLong).mul_(kOnes).bitwise_and_(kBitOfByte);
    return spread.view(at::kByte)
        .ne(0)
        .to(at::kFloat)
        .mul_(means.narrow(1, 1, 1))
        .add_(means.narrow(1, 0, 1))
        .view({-1})
        .narrow(0, 0, count);
  }
};

// Encodes `values`, and leaves their difference from the code in `values`.
void encode(at::Tensor& values, const Code& code) {
  if (values.numel() == 0) return;
  const std::int64_t chunks = code.chunks, count = values.numel();
  const at::Tensor rows =
      at::constant_pad_nd(values, {0, chunks * kChunk - count}).view({chunks, kChunk});
  const at::Tensor negative = rows < 0, negatives = negative.sum(1);
  at::Tensor others = kChunk - negatives;
  others.narrow(0, chunks - 1, 1).sub_(chunks * kChunk - count);  // the padding
  const auto mean = [](const at::Tensor& part, const at::Tensor& number) {
    return part.sum(1, false, at::kDouble) / number.clamp_min(1);
  };
  const at::Tensor positive_mean = mean(rows.clamp_min(0), others);
  code.means.select(1, 0).copy_(positive_mean);
  code.means.select(1, 1).copy_(mean(rows.clamp_max(0), negatives) - positive_mean);
  // Multiplying eight bytes of 0 or 1 gathers them as bits in the uppermost byte, the first lowest.
  constexpr std::int64_t kGather = 0x0102040810204080;
  const at::Tensor gathered = negative.view(at::kLong) * kGather;
  code.bits.copy_(at::bitwise_right_shift(gathered, 56).bitwise_and_(0xff));
  values.sub_(code.decoded(count));
}

class OneBit final : public LossyCompressor {
 public:
  using LossyCompressor::LossyCompressor;

 private:
  void send(std::size_t bucket, at::Tensor local) override {
    at::Tensor& kept = add(bucket, local);
    const std::int64_t chunks = chunks_of(kept.numel());
    const std::int64_t bytes = chunks * (kMeans + kBits);
    const auto options = kept.options().dtype(at::kByte);
    const at::Tensor own = at::empty({bytes}, options),
                     all = at::empty({bytes * world_.size()}, options);
    encode(kept, Code(own, 0, chunks));
    sent_ += bytes;
    after(world_.all_gather(tensor::to_buffer(own), tensor::to_buffer(all),
                            {.label = label_of(bucket)}),
          [this, local, own, all, bytes, chunks] {
            local.zero_();
            for (int rank = 0; rank < world_.size(); ++rank)
              local.add_(Code(all, rank * bytes, chunks).decoded(local.numel()));
          });
  }
};

}  // namespace

std::unique_ptr<Compressor> make_one_bit_compressor(comm::Communicator& world,
                                                    std::vector<BucketShape> buckets) {
  return std::make_unique<OneBit>(world, buckets);
}

}  // namespace trireme::inline v0::parallel
