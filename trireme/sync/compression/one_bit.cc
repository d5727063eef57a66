// 1-bit (Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent", 2014): sends only the sign
// of each element, and per chunk of 4,096 the mean of the non-negative and of the negative
// elements, which replace them: 520 bytes instead of 16,384. The difference stays in the residual.
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "trireme/sync/compression/compressor.h"
#include "trireme/sync/compression/residual.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr std::int64_t kChunk = 4096;

struct Encoded {
  float positive, negative;  // replace the elements of either sign
  std::uint8_t bits[kChunk / 8];
};
static_assert(sizeof(Encoded) == 520);

std::int64_t chunks_of(std::int64_t count) { return (count + kChunk - 1) / kChunk; }

// Encodes `count` <= kChunk elements and leaves in `values` what the code does not represent.
void encode(float* values, std::int64_t count, Encoded& out) {
  double positive = 0, negative = 0;
  std::int64_t num_negative = 0;
  std::memset(&out, 0, sizeof out);
  for (std::int64_t i = 0; i < count; ++i) {
    if (values[i] < 0) {
      negative += values[i];
      ++num_negative;
      out.bits[i / 8] = static_cast<std::uint8_t>(out.bits[i / 8] | 1u << (i % 8));
    } else {
      positive += values[i];
    }
  }
  const auto mean = [](double sum, std::int64_t n) {
    return n > 0 ? static_cast<float>(sum / static_cast<double>(n)) : 0.0f;
  };
  out.positive = mean(positive, count - num_negative);
  out.negative = mean(negative, num_negative);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] -= values[i] < 0 ? out.negative : out.positive;
  }
}

void add_decoded(const Encoded& in, float* sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sum[i] += in.bits[i / 8] >> (i % 8) & 1 ? in.negative : in.positive;
  }
}

class OneBit final : public Compressor {
 public:
  OneBit(comm::Communicator& world, std::vector<BucketShape> buckets)
      : world_(world), residuals_(buckets) {}

  void launch(std::size_t bucket, at::Tensor local) override {
    at::Tensor& kept = residuals_.add(bucket, local);
    const std::int64_t chunks = chunks_of(kept.numel());
    const std::int64_t bytes = chunks * static_cast<std::int64_t>(sizeof(Encoded));
    Open open{
        local, at::empty({bytes}, at::kByte), at::empty({bytes * world_.size()}, at::kByte), {}};
    float* values = kept.mutable_data_ptr<float>();
    auto* codes = reinterpret_cast<Encoded*>(open.own.mutable_data_ptr<std::uint8_t>());
    for (std::int64_t c = 0; c < chunks; ++c) {
      encode(values + c * kChunk, std::min(kChunk, kept.numel() - c * kChunk), codes[c]);
    }
    open.work = world_.all_gather(tensor::to_buffer(open.own), tensor::to_buffer(open.all),
                                  {.label = "bucket " + std::to_string(bucket)});
    sent_ += bytes;
    open_.push_back(std::move(open));
  }

  void finish() override {
    for (Open& one : open_) {
      one.work.wait();
      one.local.zero_();
      float* sum = one.local.mutable_data_ptr<float>();
      const std::int64_t count = one.local.numel(), chunks = chunks_of(count);
      const auto* codes = reinterpret_cast<const Encoded*>(one.all.const_data_ptr<std::uint8_t>());
      for (int rank = 0; rank < world_.size(); ++rank) {
        for (std::int64_t c = 0; c < chunks; ++c) {
          add_decoded(codes[rank * chunks + c], sum + c * kChunk,
                      std::min(kChunk, count - c * kChunk));
        }
      }
    }
    open_.clear();
  }

  void drop() override { residuals_.clear(); }
  std::int64_t payload_bytes() const override { return sent_; }

 private:
  struct Open {
    at::Tensor local, own, all;
    Work work;
  };
  comm::Communicator& world_;
  Residuals residuals_;
  std::vector<Open> open_;
  std::int64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<Compressor> make_one_bit_compressor(comm::Communicator& world,
                                                    std::vector<BucketShape> buckets) {
  return std::make_unique<OneBit>(world, std::move(buckets));
}

}  // namespace trireme::inline v0::parallel
