// The shared segment of a rank: one ring per peer, which that peer writes and the rank reads.
//
// A frame is one 64-byte line: a word {lap:16, kind:8, length:40}, the tag, and up to 48 bytes of
// payload. The word is stored last; its lap tells the reader that the line is new. So a small
// message costs one cache line and no shared counter. Longer payloads are in the ring's bulk area,
// in the order of their lines. The reader publishes its position once per quarter of the ring.
//
// Each ring has one writer and one reader. The sleeping flag and the words are sequentially
// consistent. So either the writer sees that the reader sleeps and rings the doorbell, or the
// reader sees the word before it sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "trireme/net/messenger.h"
#include "trireme/net/shm/control.h"

namespace trireme::inline v0::net {

inline constexpr std::uint64_t kLines = 256;
inline constexpr std::uint64_t kBulk = std::uint64_t{256} << 10;
inline constexpr std::uint64_t kShmChunk = kBulk / 4;
inline constexpr std::size_t kInline = 48;
static_assert(kEagerLimit <= kBulk / 2);

struct alignas(64) Line {
  std::atomic<std::uint64_t> word;
  std::uint64_t tag;
  std::byte payload[kInline];
};
static_assert(sizeof(Line) == 64);

struct Ring {
  alignas(64) std::atomic<std::uint64_t> lines_taken;  // written by the reader
  std::atomic<std::uint64_t> bulk_taken;
  Line lines[kLines];
  alignas(64) std::byte bulk[kBulk];
};

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t size;
  std::uint64_t nonce;                              // random
  alignas(64) std::atomic<std::uint32_t> sleeping;  // 1: peers must ring the doorbell
};

inline std::size_t segment_bytes(int size) {
  return sizeof(SegmentHeader) + 64 + static_cast<std::size_t>(size) * sizeof(Ring);
}
inline SegmentHeader* header_of(std::span<std::byte> segment) {
  return reinterpret_cast<SegmentHeader*>(segment.data());
}
/// The ring that `writer` writes, in the reader's segment.
inline Ring* ring_of(std::span<std::byte> segment, int writer) {
  constexpr std::size_t start = (sizeof(SegmentHeader) + 63) / 64 * 64;
  return reinterpret_cast<Ring*>(segment.data() + start) + writer;
}

inline std::uint64_t lap_of(std::uint64_t position) { return position / kLines % 65535 + 1; }

class RingWriter {
 public:
  explicit RingWriter(Ring* ring) : ring_(ring) {}

  bool put(const Frame& frame, std::span<const std::byte> payload) {
    if (!has_line()) return false;
    const bool bulky = payload.size() > kInline;
    if (bulky && free_bulk(payload.size()) < payload.size()) return false;
    Line& line = ring_->lines[line_ % kLines];
    line.tag = frame.tag;
    if (bulky) {
      copy_in(payload);
    } else if (!payload.empty()) {
      std::memcpy(line.payload, payload.data(), payload.size());
    }
    commit(line, frame.kind, frame.kind == FrameKind::Eager ? payload.size() : frame.length,
           frame.id, frame.kind != FrameKind::Eager);
    return true;
  }

  std::size_t put_chunk(std::uint32_t id, std::span<const std::byte> rest) {
    if (!has_line()) return 0;
    const std::size_t wanted = std::min<std::size_t>(rest.size(), kShmChunk);
    const std::size_t size = std::min<std::size_t>(wanted, free_bulk(wanted));
    // Wait for more room rather than send a small piece: the reader frees a quarter at a time.
    if (size == 0 || (size < wanted && size < kShmChunk / 4)) return 0;
    copy_in(rest.first(size));
    commit(ring_->lines[line_ % kLines], FrameKind::Data, size, id, true);
    return size;
  }

 private:
  bool has_line() {
    if (line_ - lines_taken_ < kLines) return true;
    lines_taken_ = ring_->lines_taken.load(std::memory_order_acquire);
    return line_ - lines_taken_ < kLines;
  }
  std::uint64_t free_bulk(std::size_t wanted) {
    if (kBulk - (bulk_ - bulk_taken_) < wanted) {
      bulk_taken_ = ring_->bulk_taken.load(std::memory_order_acquire);
    }
    const std::uint64_t used = bulk_ - bulk_taken_;
    return used > kBulk ? 0 : kBulk - used;
  }
  void copy_in(std::span<const std::byte> bytes) {
    const std::uint64_t at = bulk_ % kBulk;
    const std::size_t first = std::min<std::size_t>(bytes.size(), kBulk - at);
    std::memcpy(ring_->bulk + at, bytes.data(), first);
    if (first < bytes.size()) std::memcpy(ring_->bulk, bytes.data() + first, bytes.size() - first);
    bulk_ += bytes.size();
  }
  void commit(Line& line, FrameKind kind, std::uint64_t length, std::uint32_t id, bool with_id) {
    if (with_id) std::memcpy(line.payload, &id, sizeof id);
    line.word.store(lap_of(line_) << 48 | static_cast<std::uint64_t>(kind) << 40 | length);
    ++line_;
  }

  Ring* const ring_;
  std::uint64_t line_ = 0, bulk_ = 0;
  std::uint64_t lines_taken_ = 0, bulk_taken_ = 0;  // as last read from the ring
};

class RingReader {
 public:
  explicit RingReader(Ring* ring) : ring_(ring) {}

  struct Entry {
    Frame frame;
    const std::byte* payload;  // of an Eager frame whose payload is at most kInline bytes
  };
  bool peek(Entry& entry) const {
    const Line& line = ring_->lines[line_ % kLines];
    const std::uint64_t word = line.word.load();
    if (word >> 48 != lap_of(line_)) return false;
    entry.frame.kind = static_cast<FrameKind>(word >> 40 & 0xff);
    entry.frame.length = word & ((std::uint64_t{1} << 40) - 1);
    entry.frame.tag = line.tag;
    std::memcpy(&entry.frame.id, line.payload, sizeof entry.frame.id);
    entry.payload = line.payload;
    return true;
  }
  void copy_bulk(std::byte* to, std::size_t bytes) const {
    const std::uint64_t at = bulk_ % kBulk;
    const std::size_t first = std::min<std::size_t>(bytes, kBulk - at);
    std::memcpy(to, ring_->bulk + at, first);
    if (first < bytes) std::memcpy(to + first, ring_->bulk, bytes - first);
  }
  /// The next `bytes` of the bulk area: in place if they are contiguous, else copied to `scratch`.
  std::span<const std::byte> bulk(std::size_t bytes, std::vector<std::byte>& scratch) const {
    const std::uint64_t at = bulk_ % kBulk;
    if (at + bytes <= kBulk) return {ring_->bulk + at, bytes};
    scratch.resize(bytes);
    copy_bulk(scratch.data(), bytes);
    return scratch;
  }
  /// Releases the line and `bulk` bytes. True if it published room: then notify the writer.
  bool take(std::size_t bulk) {
    ++line_;
    bulk_ += bulk;
    const bool lines = line_ - lines_shown_ >= kLines / 4;
    const bool bytes = bulk_ - bulk_shown_ >= kBulk / 4;
    if (lines) ring_->lines_taken.store(lines_shown_ = line_);
    if (bytes) ring_->bulk_taken.store(bulk_shown_ = bulk_);
    return lines || bytes;
  }

 private:
  Ring* const ring_;
  std::uint64_t line_ = 0, bulk_ = 0, lines_shown_ = 0, bulk_shown_ = 0;
};

}  // namespace trireme::inline v0::net
