// Finds accesses to memory that no event and no synchronisation orders. Every byte of device memory
// and of pinned host memory that an operation has touched knows the last operation that wrote it
// and the operations that have read it since. An access is a race if the clock of its stream does
// not cover these.
//
// The check happens when an operation is given to its stream, so it finds a race whatever order the
// streams then run in. Memory is tracked by bytes, not by tensors: two streams may work on two
// parts of one storage. Not thread-safe: the caller holds the runtime's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/testing/emulated_device/vector_clock.h"

namespace trireme::inline v0::testing {

/// A run of bytes that an operation reads or writes.
struct Access {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};

/// Two operations on the same bytes; the later one does not wait for the earlier one.
struct Race {
  std::string_view earlier, later;
  StreamIndex earlier_stream = 0, later_stream = 0;
  bool earlier_writes = false, later_writes = false;
  const void* begin = nullptr;
  std::size_t bytes = 0;
};

class RaceCheck {
 public:
  /// Records the accesses of operation `name`, which is `point` of its stream. `known` covers all
  /// operations before it. Returns the first race.
  std::optional<Race> access(std::string_view name, StreamPoint point, const VectorClock& known,
                             std::span<const Access> accesses);
  /// The operations that have touched the bytes last.
  std::vector<StreamPoint> touched_by(const void* begin, std::size_t bytes);
  /// The bytes belong to a new block, or to none: forgets who touched them.
  void forget(const void* begin, std::size_t bytes);

 private:
  struct Toucher {
    StreamPoint point;
    std::string_view name;
    friend bool operator==(const Toucher& left, const Toucher& right) {
      return left.point.stream == right.point.stream && left.point.count == right.point.count;
    }
  };
  struct Segment {
    std::uintptr_t end = 0;
    std::optional<Toucher> writer;
    std::vector<Toucher> readers;  // one a stream: its last
  };
  using Segments = std::map<std::uintptr_t, Segment>;  // by begin; they do not overlap

  std::string_view interned(std::string_view name);
  void split_at(std::uintptr_t address);
  Segments::iterator add_gaps(std::uintptr_t begin, std::uintptr_t end);
  void join_neighbours(std::uintptr_t begin, std::uintptr_t end);
  static const Toucher* unordered(const Segment& segment, bool write, const VectorClock& known,
                                  bool& earlier_writes);
  static void note(Segment& segment, const Toucher& who, bool write);

  Segments segments_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace trireme::inline v0::testing
