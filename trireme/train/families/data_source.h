// The data that ships, as DataSource (own_parts.h): text, masked text, images, tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/train/families/own_parts.h"

namespace trireme::inline v0::input {
class SharedCorpus;
}

namespace trireme::inline v0::train {

using SharedBytes = std::shared_ptr<const input::SharedCorpus>;

/// Bytes of text, in windows of `block` bytes: fields "tokens" and "targets" (the next byte of
/// each), both [b, block]. `seed` decides the windows.
std::shared_ptr<const DataSource> text_source(std::int64_t block, std::uint64_t seed);
/// The same windows with some bytes hidden (input/masked_text.h): 257 tokens, of which 256 is the
/// mask; "targets" has the original bytes at target positions, -1 elsewhere.
std::shared_ptr<const DataSource> masked_text_source(std::int64_t block, std::uint64_t seed);
/// CIFAR-10's images (input/dataset.h): fields "images" [b, 3, 32, 32] and "targets" [b]. `seed`
/// decides order and augmentation.
std::shared_ptr<const DataSource> image_source(bool augment, std::uint64_t seed);

using ReadTensors = std::function<TensorSets(const std::string& path)>;
/// The tensors that `read` returns for data.path; messages call them `name`. `seed` decides the
/// order.
std::shared_ptr<const DataSource> tensor_source(std::string name, ReadTensors read, DataWords words,
                                                std::uint64_t seed);

}  // namespace trireme::inline v0::train
