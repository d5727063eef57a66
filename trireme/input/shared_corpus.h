// SharedCorpus: a corpus in memory that the processes of a host share, read once by the launcher.
//
// A sealed memfd (nobody can change or cut it any more) that ranks inherit and map read-only: one
// copy of the text, whatever the number of ranks, and no rank reads files or hashes them again.
// Immutable after construction, so thread safe; the views live as long as the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/input/corpus.h"

namespace trireme {
inline namespace v0 {
namespace input {

class SharedCorpus {
 public:
  /// Throws ResourceError where memory is short.
  static std::shared_ptr<const SharedCorpus> make(const Corpus& corpus);
  /// What another process made; `descriptor` stays the caller's. Throws ResourceError where it is
  /// no such memory.
  static std::shared_ptr<const SharedCorpus> open(int descriptor);
  ~SharedCorpus();
  SharedCorpus(const SharedCorpus&) = delete;
  SharedCorpus& operator=(const SharedCorpus&) = delete;

  std::string_view train() const noexcept { return train_; }
  std::string_view validation() const noexcept { return validation_; }
  const std::string& source() const noexcept { return source_; }
  const std::string& hash() const noexcept { return hash_; }
  /// Close-on-exec; owned by this object.
  int descriptor() const noexcept { return descriptor_; }
  std::size_t bytes() const noexcept { return size_; }

 private:
  explicit SharedCorpus(int descriptor);
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string_view train_, validation_;
  std::string source_, hash_;
};

}  // namespace input
}  // namespace v0
}  // namespace trireme
