// Link: what a transport gives a Messenger for each peer, and the frames that it carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::inline v0::net {

enum class FrameKind : std::uint8_t { Eager = 1, Rts, Cts, Refuse, Data, Room, Lost };
/// Whether a frame of this kind is for Messenger::on_control().
constexpr bool is_control(FrameKind kind) noexcept {
  return kind > FrameKind::Eager && kind <= FrameKind::Lost && kind != FrameKind::Data;
}
struct Frame {
  FrameKind kind = FrameKind::Eager;
  std::uint32_t id = 0;      // Rts, Cts, Refuse: send id; Data: receive id; Lost: rank
  std::uint64_t tag = 0;     // Eager, Rts: tag; Cts: receive id
  std::uint64_t length = 0;  // Eager, Rts: message bytes; Data: chunk bytes; Room: cost
};

/// Messages up to this size are sent as Eager frames while kUnexpectedLimit allows it.
inline constexpr std::size_t kEagerLimit = 16384;

/// The unsent rest of the part of a large message that one lane carries.
struct Piece {
  std::uint32_t id = 0;    // receive id
  std::size_t offset = 0;  // where `rest` begins in the message
  std::span<const std::byte> rest;
};

/// The outgoing connection to one peer.
class Link {
 public:
  virtual ~Link() = default;
  /// Takes the whole frame and its payload (at most kEagerLimit bytes), or nothing.
  virtual bool try_send(const Frame& frame, std::span<const std::byte> payload) = 0;
  /// Takes what fits of a piece; returns the bytes taken. A lane gets one piece after the other.
  virtual std::size_t try_stream(std::size_t lane, const Piece& piece) = 0;
};

}  // namespace trireme::inline v0::net
