// Labelled images as tensors, made of the records of image_files.h. A sample, with its crop and
// flip, is a function of (seed, index), never of the rank. Immutable, thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/input/dataset.h"
#include "trireme/input/endless_order.h"
#include "trireme/input/image_files.h"

namespace trireme::inline v0 {
namespace input {

class ImageDataset final : public Dataset {
 public:
  struct Options {
    /// True: endless, and `seed` decides the order of each epoch. False: sample i is record i.
    bool endless = false;
    /// Mirror some images and shift each by up to 4 pixels, filled with black (He et al. 2015,
    /// section 4.2). Drawn for (seed, sample), so endless data gets new draws in each epoch.
    bool augment = false;
    std::uint64_t seed = 1;
  };
  /// `owner` keeps `records` alive.
  ImageDataset(std::string_view records, std::shared_ptr<const void> owner, Options options);

  std::int64_t size() const override { return options_.endless ? 0 : count_; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  /// "images" [b, 3, 32, 32] float, each channel normalized by its mean and standard deviation over
  /// CIFAR-10; "targets" [b] int64, 0 to 9.
  Fields read(std::span<const std::int64_t> samples) const override;
  /// The record that sample i is made of.
  std::int64_t record(std::int64_t sample) const;

 private:
  void write_image(std::int64_t sample, const unsigned char* pixels, float* out) const;

  const std::string_view records_;
  const std::shared_ptr<const void> owner_;
  const Options options_;
  const std::int64_t count_;
  const EndlessOrder order_;
};

}  // namespace input
using input::ImageDataset;
}  // namespace trireme::inline v0
