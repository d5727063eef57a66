// SharedCorpus: a corpus in memory that the processes of a host share, read once by the launcher.
//
// It is a sealed memfd (nobody can change or truncate it) that ranks inherit and map read-only. So
// the host has one copy of the text, and no rank reads or hashes files again. Immutable after
// construction, so thread safe; the views are valid as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/descriptor.h"
#include "trireme/input/corpus.h"

namespace trireme::inline v0::input {

class SharedCorpus {
 public:
  /// Throws ResourceError if memory is short.
  static std::shared_ptr<const SharedCorpus> make(const Corpus& corpus);
  /// Opens a corpus that another process made; the caller still owns `descriptor`. Throws
  /// ResourceError if it is not such memory.
  static std::shared_ptr<const SharedCorpus> open(int descriptor);
  ~SharedCorpus();
  SharedCorpus(const SharedCorpus&) = delete;
  SharedCorpus& operator=(const SharedCorpus&) = delete;

  std::string_view train() const noexcept { return train_; }
  std::string_view validation() const noexcept { return validation_; }
  const std::string& source() const noexcept { return source_; }
  const std::string& hash() const noexcept { return hash_; }
  /// Close-on-exec; owned by this object.
  int descriptor() const noexcept { return descriptor_.get(); }
  std::size_t bytes() const noexcept { return size_; }

 private:
  SharedCorpus() = default;
  Descriptor descriptor_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string_view train_, validation_;
  std::string source_, hash_;
};

}  // namespace trireme::inline v0::input
