// Files of labelled images of 32 x 32 pixels, CIFAR-10's binary records (Krizhevsky 2009): 1 byte
// label, then 1,024 red, 1,024 green and 1,024 blue values, row by row. The bytes of all records
// are a Corpus. Without LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/input/corpus.h"

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

}  // namespace input
}  // namespace v0
}  // namespace trireme
