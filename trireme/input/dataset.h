// Dataset: samples by number. A sample's content is a function of (seed, sample index), never of
// the rank; batches() decides which indices a rank asks for.
//
// Immutable after construction; read() is called from a prefetch thread, so it must be thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::inline v0 {
namespace input {

class SampleOrder;

/// Named tensors whose first dim is the sample.
using Fields = std::vector<std::pair<std::string, at::Tensor>>;

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Samples in an epoch; 0 = endless (every index >= 0 exists).
  virtual std::int64_t size() const = 0;
  /// Number of items (tokens, images) in these samples. A mean loss divides by it.
  virtual std::int64_t count_items(std::span<const std::int64_t> samples) const = 0;
  virtual Fields read(std::span<const std::int64_t> samples) const = 0;
};

/// Windows of a token sequence for next-token prediction: "tokens" [b, block] int64 and "targets"
/// [b, block] int64, the same window one token later.
class TextDataset final : public Dataset {
 public:
  /// Tokens of four bytes, or of one byte (a text). Copies none; `owner` keeps them alive.
  struct Tokens {
    /// `Vector`: std::vector<std::int32_t>, const or not.
    template <class Vector>
    Tokens(std::shared_ptr<Vector> tokens)  // NOLINT: the tokens themselves
        : owner(tokens), words(tokens->data()), size(static_cast<std::int64_t>(tokens->size())) {}
    Tokens(std::string_view text, std::shared_ptr<const void> owner);
    void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;
    std::shared_ptr<const void> owner;
    const unsigned char* bytes = nullptr;
    const std::int32_t* words = nullptr;
    std::int64_t size = 0;
  };
  /// Endless: sample i starts at a position drawn for (seed, i), uniform as in nanoGPT's get_batch.
  /// Throws ConfigError if there are fewer than block + 1 tokens.
  static std::shared_ptr<const TextDataset> random_windows(Tokens tokens, std::int64_t block,
                                                           std::uint64_t seed);
  /// Sample i starts at i * block, so each token is a target at most once. For validation.
  static std::shared_ptr<const TextDataset> fixed_windows(Tokens tokens, std::int64_t block);

  std::int64_t size() const override;
  std::int64_t count_items(std::span<const std::int64_t> samples) const override;
  Fields read(std::span<const std::int64_t> samples) const override;
  /// The index of sample i's first token in the token sequence.
  std::int64_t position(std::int64_t sample) const;

 private:
  enum class Windows { Random, Fixed };
  TextDataset(Tokens tokens, std::int64_t block, Windows windows, std::uint64_t seed);

  const Tokens tokens_;
  const std::int64_t block_;
  const Windows windows_;
  const std::uint64_t seed_;
};

/// Labelled images from the records of image_files.h. A sample, with its crop and flip, is a
/// function of (seed, index), never of the rank.
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
  /// `owner` keeps `records` alive. Throws ConfigError unless they are whole records.
  ImageDataset(std::string_view records, std::shared_ptr<const void> owner, Options options);

  std::int64_t size() const override;
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  /// "images" [b, 3, 32, 32] float, each channel normalized by its mean and standard deviation over
  /// CIFAR-10; "targets" [b] int64, 0 to 9.
  Fields read(std::span<const std::int64_t> samples) const override;
  /// The number of the record that sample i shows.
  std::int64_t record(std::int64_t sample) const;

 private:
  void write_image(std::int64_t sample, const unsigned char* pixels, float* out) const;

  const std::string_view records_;
  const std::shared_ptr<const void> owner_;
  const Options options_;
  const std::shared_ptr<const SampleOrder> order_;
};

}  // namespace input
using input::Dataset;
using input::ImageDataset;
using input::TextDataset;
}  // namespace trireme::inline v0
