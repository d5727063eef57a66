// Corpus: the bytes that a model is trained on (text, or the records of images, image_files.h), cut
// into a training and a validation part.
//
// The default text is the C++ library headers of this machine's compiler. A FILE (any bytes) is cut
// 90/10 by length, a FOLDER by file. A plain value, without LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::input {

struct CorpusOptions {
  std::string path;        // a file or a folder; empty: the compiler's C++ library headers
  std::int64_t block = 1;  // each part must hold at least block + 1 bytes
};

struct Corpus {
  std::string train, validation;  // bytes
  std::string source;             // "C++ library headers in /usr/include/c++/12", or the path
  std::int64_t num_files = 0;
  /// SHA-256 over both parts; must be equal on all ranks.
  std::string hash;
};

/// Throws ConfigError if the path is missing, unreadable or empty, if a part is shorter than
/// block + 1 bytes, or if no compiler names its headers.
Corpus load_corpus(const CorpusOptions& options);

/// Sets `hash` from the two parts and the position of the cut.
void set_hash(Corpus& corpus);

/// Whether this file is held out for validation: true for about one path in ten, by a hash of the
/// path. Adding files does not move the others, since only `relative_path` counts.
bool held_out(const std::string& relative_path);

}  // namespace trireme::inline v0::input
