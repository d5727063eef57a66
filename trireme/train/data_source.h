// DataSource: the data of a job: bytes from files or memory, and the samples in them.
//
// The launcher loads the bytes once and shares them among the ranks of its host
// (input/shared_corpus.h); each rank makes its datasets from the shared bytes. Immutable, thread
// safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/input/corpus.h"
#include "trireme/input/dataset.h"

namespace trireme::inline v0::input {
class SharedCorpus;
}

namespace trireme::inline v0::train {

/// The words for samples and items, in printed lines and events.
struct DataWords {
  std::string sample = "sequence";    // batch.global counts them
  std::string items = "tokens";       // a mean loss is over these: tokens | samples
  std::string unit = "nats a byte";   // of a loss
  std::string counted = "bytes";      // what `trireme eval` calls items
  std::int64_t items_per_sample = 1;  // such as 64 for sequences of 64 tokens
};

/// The words for data whose items are samples: tensors, images.
DataWords words_of_samples();

using SharedBytes = std::shared_ptr<const input::SharedCorpus>;
using Owner = std::shared_ptr<const void>;

class DataSource {
 public:
  virtual ~DataSource() = default;
  /// Reads data.path: the bytes for training and for validation. Throws ConfigError if the path is
  /// missing or its content is not of this kind.
  virtual input::Corpus load(const std::string& path) const = 0;
  /// "data/x.bin: 4,000 images to train on, 2,000 held out".
  virtual std::string describe(const input::Corpus& corpus) const = 0;
  /// The samples in `bytes`, which are Corpus::train or Corpus::validation; `owner` keeps them
  /// alive.
  virtual std::shared_ptr<const Dataset> train(std::string_view bytes, Owner owner) const = 0;
  virtual std::shared_ptr<const Dataset> validation(std::string_view bytes, Owner owner) const = 0;
  virtual const DataWords& words() const = 0;
};

/// Bytes of text, in windows of `block` bytes: fields "tokens" and "targets" (the next byte of
/// each), both [b, block]. `seed` decides the windows.
std::shared_ptr<const DataSource> text_source(std::int64_t block, std::uint64_t seed);
/// The same windows with some bytes hidden (input/masked_text.h): 257 tokens, of which 256 is the
/// mask; "targets" has the original bytes at target positions, -1 elsewhere.
std::shared_ptr<const DataSource> masked_text_source(std::int64_t block, std::uint64_t seed);
/// CIFAR-10's images (input/images.h): fields "images" [b, 3, 32, 32] and "targets" [b]. `seed`
/// decides order and augmentation.
std::shared_ptr<const DataSource> image_source(bool augment, std::uint64_t seed);

/// Named tensors whose first dim is the sample.
struct TensorSets {
  input::Fields train, validation;
};
using ReadTensors = std::function<TensorSets(const std::string& path)>;
/// The tensors that `read` returns for data.path; messages call them `name`. `seed` decides the
/// order.
std::shared_ptr<const DataSource> tensor_source(std::string name, ReadTensors read, DataWords words,
                                                std::uint64_t seed);

}  // namespace trireme::inline v0::train
