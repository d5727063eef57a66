// Trace: what a rank did when, as spans in a ring buffer, and the file that Chrome and Perfetto
// read.
//
// One per process; whoever has a pointer to it may record, null means off (one branch). Times are
// the caller's (a Waiter's now()), so traces work on a virtual clock too. The ring keeps the newest
// spans; how many were lost is in the file. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {
namespace observe {

/// Spans of one lane nest (each lies within another or beside it); those of an overlapping lane
/// need not, and are drawn one below the other, except those of one group.
enum class Lane : std::uint8_t { Nested, Overlapping };

struct TraceSpan {
  std::int64_t begin = 0, end = 0;  // nanoseconds of the rank's clock
  std::uint64_t bytes = 0;          // 0: not said
  std::uint32_t name = 0;           // index in names
  std::uint16_t lane = 0;           // index in lanes
  std::uint16_t group = 0;          // on an overlapping lane: spans of one group nest; 0: alone
};
static_assert(std::is_trivially_copyable_v<TraceSpan>);

/// What one rank recorded, as a value: it crosses processes as text.
struct RankTrace {
  int rank = 0;
  std::string host;
  std::int64_t clock_offset = 0;  // nanoseconds; rank 0's clock = this rank's + offset
  std::int64_t clock_error = 0;   // half the round trip it was measured with; 0: the same clock
  std::uint64_t lost = 0;         // older spans that the ring dropped
  std::vector<std::string> names;
  std::vector<std::pair<std::string, Lane>> lanes;
  std::vector<TraceSpan> spans;  // by begin

  std::string to_bytes() const;
  /// Throws MismatchError where `bytes` is not what to_bytes() gives.
  static RankTrace from_bytes(std::string_view bytes);
};

class Trace {
 public:
  explicit Trace(std::size_t capacity = 1 << 17);  // 32 bytes each
  /// Lanes are drawn in the order in which they were first named.
  std::uint32_t lane(std::string_view name, Lane kind = Lane::Nested);
  void span(std::uint32_t lane, std::string_view name, TimePoint begin, TimePoint end,
            std::uint64_t bytes = 0, std::uint16_t group = 0);
  /// A group for spans of an overlapping lane; numbers come again after 65,535 of them.
  std::uint16_t new_group();
  /// Everything so far. `rank`, `host` and the clock are the caller's to fill in.
  RankTrace collect() const;

 private:
  std::uint32_t name_index(std::string_view name);
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<TraceSpan> ring_;
  std::uint64_t count_ = 0;
  std::uint16_t groups_ = 0;
  std::vector<std::string> names_;
  struct Hash : std::hash<std::string_view> {  // looks names up without a copy
    using is_transparent = void;
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> index_;
  std::vector<std::pair<std::string, Lane>> lanes_;
};

/// Records "compute" from its construction to its end; null `trace`: nothing.
class TracedScope {
 public:
  TracedScope(Trace* trace, const Waiter& waiter, const char* name)
      : trace_(trace), waiter_(waiter), name_(name), begin_(trace ? waiter.now() : TimePoint{}) {}
  ~TracedScope() {
    if (trace_) trace_->span(trace_->lane("compute"), name_, begin_, waiter_.now());
  }
  TracedScope(const TracedScope&) = delete;

 private:
  Trace* const trace_;
  const Waiter& waiter_;
  const char* const name_;
  const TimePoint begin_;
};

/// The traces as one Trace Event Format document (chrome://tracing, ui.perfetto.dev): a process per
/// rank, a thread per lane, microseconds since the first span, on rank 0's clock.
std::string chrome_json(std::span<const RankTrace> traces);

}  // namespace observe
}  // namespace v0
}  // namespace trireme
