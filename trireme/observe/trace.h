// Trace: what a rank did and when, as spans in a ring buffer; and the file for Chrome and Perfetto.
//
// One per process, thread safe. Where the pointer to it is null, nothing is recorded (one branch).
// Callers pass times (a Waiter's now()), so traces work on a virtual clock too. The ring keeps the
// newest spans; the file says how many were lost.
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

namespace trireme::inline v0::observe {

/// Spans of a Nested lane must nest: each lies within another or beside it. Spans of an Overlapping
/// lane need not, and are drawn below each other, except the spans of one group, which nest.
enum class Lane : std::uint8_t { Nested, Overlapping };

struct TraceSpan {
  std::int64_t begin = 0, end = 0;  // nanoseconds on the rank's clock
  std::uint64_t bytes = 0;          // 0: unknown
  std::uint32_t name = 0;           // index in names
  std::uint16_t lane = 0;           // index in lanes
  std::uint16_t group = 0;          // on an overlapping lane: spans of one group nest; 0: alone
};
static_assert(std::is_trivially_copyable_v<TraceSpan>);

/// The recording of one rank, as a value. It crosses processes as bytes.
struct RankTrace {
  int rank = 0;
  std::string host;
  std::int64_t clock_offset = 0;  // nanoseconds; rank 0's clock = this rank's + offset
  std::int64_t clock_error = 0;   // half the round trip of the measurement; 0: the same clock
  std::uint64_t lost = 0;         // older spans that the ring has dropped
  std::vector<std::string> names;
  std::vector<std::pair<std::string, Lane>> lanes;
  std::vector<TraceSpan> spans;  // sorted by begin

  std::string to_bytes() const;
  /// Throws MismatchError if to_bytes() cannot have written `bytes`.
  static RankTrace from_bytes(std::string_view bytes);
};

class Trace {
 public:
  explicit Trace(std::size_t capacity = 1 << 17);  // spans of 32 bytes
  /// Lanes are drawn in the order in which they were first used.
  std::uint32_t lane(std::string_view name, Lane kind = Lane::Nested);
  void span(std::uint32_t lane, std::string_view name, TimePoint begin, TimePoint end,
            std::uint64_t bytes = 0, std::uint16_t group = 0);
  /// A number for a group of spans on an Overlapping lane. Repeats after 65,535 groups.
  std::uint16_t new_group();
  /// All recorded spans. The caller sets `rank`, `host` and the clock fields.
  RankTrace collect() const;

 private:
  std::uint32_t name_index(std::string_view name);
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<TraceSpan> ring_;
  std::uint64_t count_ = 0;
  std::uint16_t groups_ = 0;
  std::vector<std::string> names_;
  struct Hash : std::hash<std::string_view> {  // finds names without a copy
    using is_transparent = void;
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> index_;
  std::vector<std::pair<std::string, Lane>> lanes_;
};

/// Records a span on the lane "compute" for its own lifetime; nothing if `trace` is null.
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

/// Writes the traces as one Trace Event Format document (chrome://tracing, ui.perfetto.dev): a
/// process per rank, a thread per lane, in microseconds since the first span, on rank 0's clock.
std::string chrome_json(std::span<const RankTrace> traces);

}  // namespace trireme::inline v0::observe
