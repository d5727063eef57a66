// Corpus: the bytes a model is trained on, cut into a training and a validation part: text, or the
// records of images (input/images.h).
//
// By default text is real and always there: the C++ library headers of this machine's own compiler.
// A FILE (any bytes) is cut 90/10 by length; a FOLDER by file. A plain value, without LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace input {

struct CorpusOptions {
  std::string path;        // a file or a folder; empty: the compiler's C++ library headers
  std::int64_t block = 1;  // each part must hold at least block + 1 bytes
};

struct Corpus {
  std::string train, validation;  // bytes
  std::string source;             // "C++ library headers in /usr/include/c++/12", or the path
  std::int64_t num_files = 0;
  /// SHA-256 over both parts: what must be equal on all ranks.
  std::string hash;
};

/// Throws ConfigError where the path is missing, unreadable or empty, where a part is shorter than
/// block + 1 bytes, and where no compiler tells its headers.
Corpus load_corpus(const CorpusOptions& options);

/// Sets the hash: the two parts and where they meet.
void set_hash(Corpus& corpus);

/// True for about one path in ten, by a hash of it: the files held out for validation. It depends
/// on nothing but `relative_path`, so more files do not move the others.
bool held_out(const std::string& relative_path);

}  // namespace input
}  // namespace v0
}  // namespace trireme
