// SharedResult: memory for a collective's result that exists once per host instead of once per
// rank. Every rank of the group maps it read-only. The collectives with `_shared` in their name
// write it, each rank its own part. So a sum of S bytes over n ranks moves (n + 1) S bytes of
// memory instead of 2 n S, and an all-gather to S bytes moves 2 S.
//
// A result is valid from the end of its Work until this rank begins the next call that writes to
// the same SharedResult. Wait for one such call before the next; it writes only after all ranks
// have begun it. If the ranks do not share memory (another transport, several hosts), each has its
// own copy and shared() is false; the calls are the same. Copies of a SharedResult refer to the
// same memory, which is freed with the last copy on all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0 {
namespace comm {

class SharedResult {
 public:
  SharedResult() = default;
  std::span<const std::byte> bytes() const noexcept;
  /// The memory as elements of T, as many as fit.
  template <class T>
  std::span<const T> values() const noexcept {
    return {reinterpret_cast<const T*>(bytes().data()), bytes().size() / sizeof(T)};
  }
  bool shared() const noexcept;

 private:
  friend class Communicator;
  class Memory;
  explicit SharedResult(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  /// Elements [begin, begin + count), writable.
  Buffer writable(std::size_t begin, std::size_t count, DType dtype) const;
  std::shared_ptr<Memory> memory_;
};

}  // namespace comm
using comm::SharedResult;
}  // namespace trireme::inline v0
