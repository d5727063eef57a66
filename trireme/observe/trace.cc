#include "trireme/observe/trace.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"

namespace trireme::inline v0::observe {
namespace {

std::int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<Duration>(time.time_since_epoch()).count();
}

[[noreturn]] void torn() {
  throw MismatchError("a rank's trace is cut short",
                      {.operation = "trace", .advice = "Do all ranks run the same build?"});
}

struct Writer {
  std::string out;
  template <class T>
  void number(T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number(static_cast<std::uint64_t>(value.size()));
    out += value;
  }
};

struct Reader {
  std::string_view rest;
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest.size()) torn();
    const std::string_view part = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return part;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  // A count of items of at least `bytes` bytes each, checked before memory is allocated.
  std::uint64_t count(std::size_t bytes) {
    const auto value = number<std::uint64_t>();
    if (value > rest.size() / bytes) torn();
    return value;
  }
};

// Microseconds with all digits, as the format expects.
std::string microseconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct Document {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool first = true;
  std::uint64_t next_id = 1;

  void event(const std::string& body) {
    out += first ? "\n{" : ",\n{";
    out += body;
    out += '}';
    first = false;
  }
  void name(const char* what, int pid, std::uint32_t tid, const std::string& value) {
    event("\"ph\":\"M\",\"name\":\"" + std::string(what) + "\",\"pid\":" + std::to_string(pid) +
          ",\"tid\":" + std::to_string(tid) + ",\"args\":{\"name\":" + quoted(value) + "}");
  }
  void span(const RankTrace& trace, const TraceSpan& span, std::int64_t zero) {
    const auto& [lane, kind] = trace.lanes[span.lane];
    const std::string common =
        "\"name\":" + quoted(trace.names[span.name]) + ",\"cat\":" + quoted(lane) +
        ",\"pid\":" + std::to_string(trace.rank) + ",\"tid\":" + std::to_string(span.lane + 1);
    const std::int64_t begin = span.begin + trace.clock_offset - zero;
    const std::int64_t length = span.end - span.begin;
    const std::string arguments =
        span.bytes > 0 ? ",\"args\":{\"bytes\":" + std::to_string(span.bytes) + "}" : "";
    if (kind == Lane::Nested) {
      event("\"ph\":\"X\"," + common + ",\"ts\":" + microseconds(begin) +
            ",\"dur\":" + microseconds(length) + arguments);
      return;
    }
    Group alone;
    Group& group = span.group == 0 ? alone : groups[{span.lane, span.group}];
    close(group, begin);
    if (group.open.empty()) group.id = next_id++;
    const std::string id = ",\"id\":" + std::to_string(group.id);
    event("\"ph\":\"b\"," + common + id + ",\"ts\":" + microseconds(begin) + arguments);
    group.open.emplace_back(begin + length, common + id);
    if (span.group == 0) close(group);
  }
  // Ends the spans that end by `time`, inner ones first.
  struct Group {
    std::uint64_t id = 0;
    std::vector<std::pair<std::int64_t, std::string>> open;  // end, and the event's fields
  };
  void close(Group& group, std::int64_t time = std::numeric_limits<std::int64_t>::max()) {
    for (; !group.open.empty() && group.open.back().first <= time; group.open.pop_back()) {
      const auto& [end, fields] = group.open.back();
      event("\"ph\":\"e\"," + fields + ",\"ts\":" + microseconds(end));
    }
  }
  void close_all() {
    for (auto& [key, group] : groups) close(group);
    groups.clear();
  }
  std::map<std::pair<std::uint16_t, std::uint16_t>, Group> groups;  // of the rank being written
};

}  // namespace

std::string RankTrace::to_bytes() const {
  Writer writer;
  writer.number(rank);
  writer.text(host);
  writer.number(clock_offset);
  writer.number(clock_error);
  writer.number(lost);
  writer.number(static_cast<std::uint64_t>(names.size()));
  for (const std::string& name : names) writer.text(name);
  writer.number(static_cast<std::uint64_t>(lanes.size()));
  for (const auto& [name, kind] : lanes) {
    writer.text(name);
    writer.number(kind);
  }
  writer.number(static_cast<std::uint64_t>(spans.size()));
  for (const TraceSpan& span : spans) writer.number(span);
  return std::move(writer.out);
}

RankTrace RankTrace::from_bytes(std::string_view bytes) {
  Reader reader{bytes};
  RankTrace trace;
  trace.rank = reader.number<int>();
  trace.host = reader.text();
  trace.clock_offset = reader.number<std::int64_t>();
  trace.clock_error = reader.number<std::int64_t>();
  trace.lost = reader.number<std::uint64_t>();
  trace.names.resize(reader.count(sizeof(std::uint64_t)));
  for (std::string& name : trace.names) name = reader.text();
  trace.lanes.resize(reader.count(sizeof(std::uint64_t) + 1));
  for (auto& [name, kind] : trace.lanes) {
    name = reader.text();
    kind = reader.number<Lane>();
  }
  trace.spans.resize(reader.count(sizeof(TraceSpan)));
  for (TraceSpan& span : trace.spans) {
    span = reader.number<TraceSpan>();
    if (span.lane >= trace.lanes.size() || span.name >= trace.names.size()) torn();
  }
  if (!reader.rest.empty()) torn();
  return trace;
}

Trace::Trace(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {}

std::uint32_t Trace::lane(std::string_view name, Lane kind) {
  std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(lanes_, [&](const auto& lane) { return lane.first == name; });
  const auto number = static_cast<std::uint32_t>(found - lanes_.begin());
  if (found == lanes_.end()) lanes_.emplace_back(name, kind);
  return number;
}

std::uint32_t Trace::name_index(std::string_view name) {
  if (const auto known = index_.find(name); known != index_.end()) return known->second;
  const auto number = static_cast<std::uint32_t>(names_.size());
  index_.emplace(name, number);
  names_.emplace_back(name);
  return number;
}

void Trace::span(std::uint32_t lane, std::string_view name, TimePoint begin, TimePoint end,
                 std::uint64_t bytes, std::uint16_t group) {
  std::lock_guard lock(mutex_);
  const TraceSpan span{nanoseconds(begin),
                       std::max(nanoseconds(begin), nanoseconds(end)),
                       bytes,
                       name_index(name),
                       static_cast<std::uint16_t>(lane),
                       group};
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
  } else {
    ring_[count_ % capacity_] = span;
  }
  ++count_;
}

std::uint16_t Trace::new_group() {
  std::lock_guard lock(mutex_);
  return ++groups_ == 0 ? ++groups_ : groups_;
}

RankTrace Trace::collect() const {
  std::lock_guard lock(mutex_);
  RankTrace trace;
  trace.lost = count_ - ring_.size();
  trace.names = names_;
  trace.lanes = lanes_;
  trace.spans = ring_;
  // An enclosing span comes first: readers nest by order if times are equal.
  std::ranges::stable_sort(trace.spans, [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return trace;
}

std::string chrome_json(std::span<const RankTrace> traces) {
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& trace : traces)
    for (const TraceSpan& span : trace.spans)
      zero = std::min(zero, span.begin + trace.clock_offset);
  Document document;
  for (const RankTrace& trace : traces) {
    document.name(
        "process_name", trace.rank, 0,
        "rank " + std::to_string(trace.rank) + (trace.host.empty() ? "" : " on " + trace.host));
    for (std::uint32_t lane = 0; lane < trace.lanes.size(); ++lane)
      document.name("thread_name", trace.rank, lane + 1, trace.lanes[lane].first);
    for (const TraceSpan& span : trace.spans) document.span(trace, span, zero);
    document.close_all();
  }
  const auto facts = [](const RankTrace& trace) {
    return "{\"rank\":" + std::to_string(trace.rank) +
           ",\"clock_offset_ns\":" + std::to_string(trace.clock_offset) +
           ",\"clock_error_ns\":" + std::to_string(trace.clock_error) +
           ",\"lost_spans\":" + std::to_string(trace.lost) + "}";
  };
  return document.out + "\n],\"otherData\":{\"ranks\":[" + joined(traces, facts, ",") + "]}}\n";
}

}  // namespace trireme::inline v0::observe
