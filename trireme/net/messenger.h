// Messenger: matches sends with receives over one Link per peer; shm and tcp share it.
//
//   send <= 16 KiB   Eager(tag, bytes) ->             buffered at the receiver if unexpected
//   larger           Rts(tag, length, send id) ->
//                    <- Cts(send id, receive id)      once a receive of that length is posted
//                    Data(receive id, chunk) ... ->   straight into the receiver's buffer
//
// A rank has at most 64 MiB of eager messages under way to a peer that the peer's user has not
// taken. The receiver says what its user took, by and by:
//                    <- Room(bytes)
// Beyond these 64 MiB a small message goes as a large one does and its bytes stay with the sender,
// so buffers are bounded and nothing ever stands in the way of the message that is awaited.
//
// Eager and Rts frames of a pair travel in one queue, so messages of one tag are matched in order;
// Data chunks travel between them, so a large message holds nobody up. Where a link has several
// lanes, its first one carries that queue and all of them share the large messages, piece by piece.
// Used in the progress context only, except pending(). Continuations may call back into send() and
// recv().
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace net {

enum class FrameKind : std::uint8_t { Eager = 1, Rts, Cts, Refuse, Data, Room };
struct Frame {
  FrameKind kind = FrameKind::Eager;
  std::uint32_t id = 0;      // Rts, Cts, Refuse: the send's; Data: the receive's
  std::uint64_t tag = 0;     // Cts: the receive's id
  std::uint64_t length = 0;  // Eager, Rts: of the message; Data: of the chunk; Room: bytes taken
};

/// Messages up to this size are sent without asking while there is room for them.
inline constexpr std::size_t kEagerLimit = 16384;
/// The most eager messages of one peer that wait for their receives, each with what it costs to
/// keep it.
inline constexpr std::size_t kUnexpectedLimit = std::size_t{64} << 20;
inline constexpr std::size_t kMessageCost = 64;

/// What is left of a large message's part that travels on one lane.
struct Piece {
  std::uint32_t id = 0;    // the receive's
  std::size_t offset = 0;  // of `rest` in the message
  std::span<const std::byte> rest;
};

/// The way to one peer.
class Link {
 public:
  virtual ~Link() = default;
  /// Takes the whole frame and payload (at most kEagerLimit) or nothing.
  virtual bool try_send(const Frame& frame, std::span<const std::byte> payload) = 0;
  /// Takes what fits of a piece; 0 if nothing does now. A lane is given one piece after the other.
  virtual std::size_t try_stream(std::size_t lane, const Piece& piece) = 0;
};

class Messenger {
 public:
  Messenger(int rank, int size, std::shared_ptr<Waiter> waiter);
  ~Messenger();

  void attach(int peer, Link* link, std::size_t num_lanes = 1);
  Work send(int peer, Tag tag, std::span<const std::byte> bytes);
  Work recv(int peer, Tag tag, std::span<std::byte> bytes);
  /// Every pending and later Work fails with `error`.
  void abort(const std::exception_ptr& error) noexcept;
  /// `peer` is gone: what is pending with it fails with PeerLost; what it sent whole stays.
  void lose(int peer, std::string_view detail);
  bool aborted() const noexcept { return failure_ != nullptr; }
  bool lost(int peer) const { return at(peer).gone; }
  bool pending() const noexcept { return pending_.load(std::memory_order_relaxed) > 0; }
  /// Something waits for the link to `peer` to take it.
  bool has_output(int peer) const { return !at(peer).queue.empty() || !at(peer).streams.empty(); }
  /// When bytes last went to `peer` or came from it, as far as its link told note_move(); any
  /// thread.
  TimePoint last_moved(int peer) const noexcept;
  void note_move(int peer) noexcept;

  // Called by links, when something came or may go again.
  bool pump(int peer);
  void on_eager(int peer, Tag tag, std::span<const std::byte> payload);
  void on_control(int peer, const Frame& frame);
  /// Where the receive's `length` bytes at `offset` go; nullptr if the peer may not send them.
  std::byte* destination(int peer, std::uint32_t id, std::size_t offset, std::size_t length);
  /// The same for a link of one lane, where bytes come in order.
  std::byte* destination(int peer, std::uint32_t id, std::size_t length);
  void on_data(int peer, std::uint32_t id, std::size_t length);

 private:
  static constexpr std::size_t kRoomBytes = kUnexpectedLimit / 4;     // told at once
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // where lanes share

  struct Posted {
    Tag tag;
    std::span<std::byte> bytes;
    WorkSource source;
  };
  struct Unexpected {
    Tag tag;
    bool whole = true;  // the bytes are here; otherwise the sender waits for our Cts
    std::uint32_t id = 0;
    std::size_t length = 0;
    std::vector<std::byte> bytes;
  };
  struct Queued {
    Frame frame;
    std::span<const std::byte> bytes;
    std::shared_ptr<WorkSource> source;  // of an eager send that found the link full
  };
  struct Sending {
    std::span<const std::byte> bytes;
    WorkSource source;
  };
  struct Stream {
    Piece unclaimed;   // what no lane has taken on yet
    std::size_t left;  // to be written
    WorkSource source;
  };
  struct Lane {
    Piece piece;
    Stream* stream = nullptr;  // whose piece it is; null: idle
  };
  struct Receiving {
    std::span<std::byte> bytes;
    std::size_t done = 0;
    WorkSource source;
  };
  struct Peer {
    Link* link = nullptr;
    bool gone = false;
    bool pumping = false;
    std::string detail;
    std::deque<Posted> posted;
    std::deque<Unexpected> unexpected;
    std::size_t unexpected_cost = 0;  // of its eager messages among them
    std::size_t untold = 0;           // cost of those that were taken since it was told
    std::size_t under_way = 0;        // cost of eager messages to it that it may still have
    std::atomic<Duration::rep> moved{TimePoint::min().time_since_epoch().count()};
    std::deque<Queued> queue;
    std::list<Stream> streams;
    std::vector<Lane> lanes;
    std::unordered_map<std::uint32_t, Sending> sending;
    std::unordered_map<std::uint32_t, Receiving> receiving;
    std::uint32_t next_id = 0;
  };
  class Local;  // the link to oneself

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  const Peer& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  void count(int change);
  WorkSource begin(const char* what, int peer);
  void end(const WorkSource& source, const std::exception_ptr& error = nullptr);
  void queue(int peer, const Frame& frame);
  void take(int peer, Unexpected message, const Posted& posted);
  void deliver(int peer, std::span<const std::byte> bytes, const Posted& posted);
  void make_room(int peer, std::size_t cost);
  void accept(int peer, std::uint32_t send_id, std::size_t length, const Posted& posted);
  bool pump_once(Peer& to);
  bool pump_lane(Peer& to, std::size_t lane);
  static bool claim(Peer& to, Lane& lane);
  void fail_all(int peer, const std::exception_ptr& send_error,
                const std::exception_ptr& recv_error);

  const int rank_;
  const std::shared_ptr<Waiter> waiter_;
  std::vector<Peer> peers_;
  std::unique_ptr<Local> local_;
  std::exception_ptr failure_;
  std::atomic<long> pending_{0};
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
