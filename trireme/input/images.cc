#include "trireme/input/dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <string>

#include "trireme/base/error.h"
#include "trireme/input/epoch_order.h"
#include "trireme/input/image_files.h"

namespace trireme::inline v0::input {
namespace {

constexpr std::int64_t kPlane = kImageSide * kImageSide;
constexpr std::int64_t kPad = 4;
constexpr std::uint64_t kCropStream = 2;  // differs from those of epoch_order and text windows
// Mean and deviation over CIFAR-10's 50,000 training images, values from 0 to 1.
constexpr std::array<float, 3> kMean = {0.4914F, 0.4822F, 0.4465F};
constexpr std::array<float, 3> kDeviation = {0.2470F, 0.2435F, 0.2616F};

// For each channel, the normalized value of each of the 256 bytes.
using Tables = std::array<std::array<float, 256>, kImageChannels>;
const Tables& normalized() {
  static const Tables tables = [] {
    Tables all{};
    for (std::size_t c = 0; c < all.size(); ++c)
      for (std::size_t v = 0; v < 256; ++v)
        all[c][v] = (static_cast<float>(v) / 255 - kMean[c]) / kDeviation[c];
    return all;
  }();
  return tables;
}

}  // namespace

ImageDataset::ImageDataset(std::string_view records, std::shared_ptr<const void> owner,
                           Options options)
    : records_(records),
      owner_(std::move(owner)),
      options_(options),
      order_(std::make_shared<SampleOrder>(static_cast<std::int64_t>(records.size()) / kImageRecord,
                                           options.endless, options.seed)) {
  if (records.empty() || records.size() % kImageRecord != 0)
    throw ConfigError(std::to_string(records.size()) + " bytes are no records of " +
                          std::to_string(kImageRecord) + " bytes each",
                      {.operation = "data", .advice = "Give what load_images() has read."});
}

std::int64_t ImageDataset::size() const { return order_->size(); }

std::int64_t ImageDataset::record(std::int64_t sample) const { return order_->record(sample); }

// Writes the image shifted by (down, right) and perhaps mirrored. Pixels from outside are black.
void ImageDataset::write_image(std::int64_t sample, const unsigned char* pixels, float* out) const {
  std::int64_t down = 0, right = 0;
  bool mirrored = false;
  if (options_.augment) {
    const auto number = static_cast<std::uint64_t>(sample);
    const auto drawn = static_cast<std::int64_t>(
        random_below(2 * (2 * kPad + 1) * (2 * kPad + 1), options_.seed, kCropStream, number));
    mirrored = drawn % 2 == 1;
    down = drawn / 2 % (2 * kPad + 1) - kPad;
    right = drawn / 2 / (2 * kPad + 1) - kPad;
  }
  for (std::int64_t channel = 0; channel < kImageChannels; ++channel) {
    const auto& scaled = normalized()[static_cast<std::size_t>(channel)];
    for (std::int64_t y = 0; y < kImageSide; ++y) {
      for (std::int64_t x = 0; x < kImageSide; ++x) {
        const std::int64_t from_y = y + down;
        const std::int64_t from_x = (mirrored ? kImageSide - 1 - x : x) + right;
        const bool inside =
            from_y >= 0 && from_y < kImageSide && from_x >= 0 && from_x < kImageSide;
        *out++ = scaled[inside ? pixels[channel * kPlane + from_y * kImageSide + from_x] : 0];
      }
    }
  }
}

Fields ImageDataset::read(std::span<const std::int64_t> samples) const {
  const auto rows = static_cast<std::int64_t>(samples.size());
  at::Tensor images =
      at::empty({rows, kImageChannels, kImageSide, kImageSide}, at::TensorOptions(at::kFloat));
  at::Tensor targets = at::empty({rows}, at::TensorOptions(at::kLong));
  const auto* bytes = reinterpret_cast<const unsigned char*>(records_.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    const unsigned char* record_at = bytes + record(sample) * kImageRecord;
    targets.data_ptr<std::int64_t>()[row] = record_at[0];
    write_image(sample, record_at + 1, images.data_ptr<float>() + row * kImageChannels * kPlane);
  }
  return {{"images", std::move(images)}, {"targets", std::move(targets)}};
}

}  // namespace trireme::inline v0::input
