// SharedResult: where a collective's result lies once per host instead of once per rank. Every rank
// of the group maps the same memory, read-only; the collectives with `_shared` in their name write
// it, each rank its own part, so a sum moves (n + 1) S bytes of memory instead of 2 n S, and a
// gathered whole 2 S.
//
// A result stands from the Work's end until this rank begins the next call that writes to the same
// SharedResult: that call begins to write when all ranks have begun it. Do not begin it before the
// one before has ended. Where the ranks of the group do not share memory (another transport,
// several hosts) each has a copy of its own and shared() is false; the calls are the same. A copy
// of a SharedResult stands for the same memory, which goes with the last of them on all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class SharedResult {
 public:
  SharedResult() = default;
  std::span<const std::byte> bytes() const noexcept;
  /// The elements at its beginning: as many as fit.
  template <class T>
  std::span<const T> values() const noexcept {
    return {reinterpret_cast<const T*>(bytes().data()), bytes().size() / sizeof(T)};
  }
  bool shared() const noexcept;

 private:
  friend class Communicator;
  class Memory;
  explicit SharedResult(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  /// Elements [begin, begin + count) as collectives write them.
  Buffer writable(std::size_t begin, std::size_t count, DType dtype) const;
  std::shared_ptr<Memory> memory_;
};

}  // namespace comm
using comm::SharedResult;
}  // namespace v0
}  // namespace trireme
