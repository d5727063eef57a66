// Files of labelled images of 32 x 32 pixels, CIFAR-10's binary records (Krizhevsky 2009): 1 byte
// label, then 1,024 red, 1,024 green and 1,024 blue values, row by row. The bytes of all records
// are a Corpus. Without LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/input/corpus.h"

namespace trireme::inline v0::input {

inline constexpr std::int64_t kImageSide = 32, kImageChannels = 3, kImageClasses = 10;
inline constexpr std::int64_t kImageRecord = 1 + kImageChannels * kImageSide * kImageSide;

/// Reads the records for training and validation from .bin or .bin.gz files. In a folder, files
/// whose names begin with data_batch are for training and those that begin with test for
/// validation, both in name order; x.bin.gz is left out beside x.bin. The last tenth of a single
/// file is for validation. Throws ConfigError if there are no records, a record is incomplete, or a
/// label is above 9.
Corpus load_images(const std::string& path);

}  // namespace trireme::inline v0::input
