// Labelled images of 32 x 32 pixels in CIFAR-10's binary records (Krizhevsky 2009): 1 byte label,
// then 1,024 red, 1,024 green and 1,024 blue values, row by row.
//
// The bytes of all records are a Corpus; ImageDataset makes tensors of them. What a sample is, its
// crop and flip included, is a function of (seed, index), never of a rank. Immutable, thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/input/corpus.h"
#include "trireme/input/dataset.h"
#include "trireme/input/endless_order.h"

namespace trireme {
inline namespace v0 {
namespace input {

inline constexpr std::int64_t kImageSide = 32, kImageChannels = 3, kImageClasses = 10;
inline constexpr std::int64_t kImageRecord = 1 + kImageChannels * kImageSide * kImageSide;

/// Records to train on and held out, as they are in the files (.bin or .bin.gz). A folder: files
/// whose names begin with data_batch, in name order, and those that begin with test. A file: its
/// last tenth is held out. Throws ConfigError where there are none, where a file is no whole number
/// of records, or a label is above 9.
Corpus load_images(const std::string& path);

class ImageDataset final : public Dataset {
 public:
  struct Options {
    /// Endless, each epoch in an order of its own drawn by `seed`; otherwise record i is sample i.
    bool endless = false;
    /// Of the endless: mirrored or not, and moved by up to 4 pixels with black around (He et al.
    /// 2015, section 4.2), drawn for (seed, sample).
    bool augment = false;
    std::uint64_t seed = 1;
  };
  /// `owner` keeps the records where they are.
  ImageDataset(std::string_view records, std::shared_ptr<const void> owner, Options options);

  std::int64_t size() const override { return options_.endless ? 0 : count_; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  /// "images" [b, 3, 32, 32] float, each channel less its mean over CIFAR-10 and divided by its
  /// standard deviation; "targets" [b] int64, 0 to 9.
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
}  // namespace v0
}  // namespace trireme
