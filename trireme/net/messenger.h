// Messenger: matches sends with receives over one Link per peer. shm, tcp and mpi share it. Used in
// the progress context only, except pending() and last_moved(). Continuations may call send() and
// recv().
//
//   sender                                          receiver
//
//   up to 16 KiB
//      |  ---- Eager(tag, bytes) ------------------>  |  buffered if no receive is posted
//      |  <--- Room(cost) --------------------------  |  now and then: cost of messages taken
//
//   larger, or more than 64 MiB of Eager messages are not taken yet
//      |  ---- Rts(tag, length, send id) ---------->  |
//      |  <--- Cts(send id, receive id) ------------  |  when a receive of that length is posted
//      |  ---- Data(receive id, chunk) ------------>  |  into the receiver's memory; repeated
//   or:
//      |  <--- Refuse(send id) ---------------------  |  the lengths differ, or both are 0: no Data
//
// A rank that aborts because it has lost another one tells its peers that rank's number (Lost)
// before its connections end. Their errors then name the rank that was lost first.
//
// The limit of 64 MiB per pair bounds the receiver's buffers. Beyond it the bytes stay with the
// sender, so buffered messages never block the message that the receiver waits for.
//
// The Eager and Rts frames of a pair share one queue, so messages with one tag are matched in
// order; see net/outbox.h and net/inbox.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/net/inbox.h"
#include "trireme/net/outbox.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

class Messenger final : public MoveTimes {
 public:
  /// `names`: the rank numbers that errors print, if not those of this group.
  Messenger(int rank, int size, std::shared_ptr<Waiter> waiter, std::vector<int> names = {});

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(peers_.size()); }
  const std::shared_ptr<Waiter>& waiter() const noexcept { return waiter_; }
  /// The number of a rank that errors print.
  int name_of(int peer) const { return names_.empty() ? peer : names_[peer]; }
  void attach(int peer, Link* link, std::size_t num_lanes = 1);
  Work send(int peer, Tag tag, std::span<const std::byte> bytes);
  Work recv(int peer, Tag tag, std::span<std::byte> bytes);
  /// Fails every pending and later Work with `error`.
  void abort(const std::exception_ptr& error) noexcept;
  /// Marks `peer` as lost: Works pending with it fail with PeerLost. Eager messages that arrived
  /// from it can still be received.
  void lose(int peer, std::string_view detail);
  bool aborted() const noexcept { return failure_ != nullptr; }
  bool lost(int peer) const { return peers_[peer].gone; }
  bool pending() const noexcept { return open_.any(); }
  /// As reported through note_move().
  TimePoint last_moved(int peer) const noexcept override;
  void note_move(int peer) noexcept;

  // Called by links, when a frame has arrived or the link can send again.
  /// Sends what waits for the link to `peer`; true if anything moved.
  bool pump(int peer) { return !peers_[peer].out.empty() && peers_[peer].out.pump(); }
  void on_eager(int peer, Tag tag, std::span<const std::byte> payload);
  void on_control(int peer, const Frame& frame);
  /// Address for `length` bytes at `offset` of receive `id`; nullptr if the peer may not send them.
  /// Without an offset (a link with one lane): for the bytes that come next.
  std::byte* destination(int peer, std::uint32_t id, std::optional<std::size_t> offset,
                         std::size_t length) {
    return peers_[peer].in.destination(id, offset, length);
  }
  void on_data(int peer, std::uint32_t id, std::size_t length);

 private:
  static constexpr std::size_t kRoomBytes = kUnexpectedLimit / 4;  // cost taken per Room frame

  struct Peer {
    Outbox out;
    Inbox in;
    bool gone = false;
    int cause = -1;  // the rank whose loss it has named (Lost); -1: none
    std::string detail;
    std::size_t untold = 0;     // cost taken and not yet reported by a Room frame
    std::size_t under_way = 0;  // cost of eager messages to it, not reported as taken
    std::atomic<Duration::rep> moved{TimePoint::min().time_since_epoch().count()};
  };

  void deliver(int peer, std::span<const std::byte> bytes, const Inbox::Receive& receive);
  void accept(int peer, std::uint32_t send_id, std::size_t length, const Inbox::Receive& receive);
  std::exception_ptr error_of(int peer, std::string_view operation) const;
  void fail_all(int peer, bool keep_messages, const std::exception_ptr& send_error,
                const std::exception_ptr& recv_error);

  const int rank_;
  const std::vector<int> names_;
  const std::shared_ptr<Waiter> waiter_;
  OpenWorks open_;
  std::vector<Peer> peers_;
  const std::unique_ptr<Link> local_;  // to this rank itself
  std::exception_ptr failure_;
};

/// Messenger::destination() and on_data() for data that lies elsewhere, which it copies. False if
/// the peer may not send it. After an abort it discards the data and returns true.
bool take_data(Messenger& messenger, int peer, std::uint32_t id, std::optional<std::size_t> offset,
               std::span<const std::byte> data);

}  // namespace trireme::inline v0::net
