// Outbox: what a Messenger still has to send to one peer. Frames leave in order, with pieces of
// large messages between them, so that a large message does not delay small ones. If the link has
// several lanes, the first one carries the frames, and all lanes share the large messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/net/link.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// The Works that a Messenger has begun and the frames that have not left. Changed in the progress
/// context only; any() may be called from any thread.
class OpenWorks {
 public:
  explicit OpenWorks(std::shared_ptr<Waiter> waiter) : waiter_(std::move(waiter)) {}
  bool any() const noexcept { return count_.load(std::memory_order_relaxed) > 0; }
  void count(int change) noexcept;
  /// Errors name the Work by `what` and `peer`: "recv from 3".
  WorkSource begin(const char* what, int peer);
  void end(const WorkSource& source, const std::exception_ptr& error = nullptr);

 private:
  const std::shared_ptr<Waiter> waiter_;
  std::atomic<long> count_{0};
};

class Outbox {
 public:
  /// `open` must outlive the Outbox.
  void attach(Link* link, std::size_t num_lanes, OpenWorks* open);
  bool empty() const noexcept { return queue_.empty() && streams_.empty(); }
  /// Sends at once if nothing is queued and the link has room.
  bool try_send(const Frame& frame, std::span<const std::byte> bytes);
  /// `source`: an eager send, which completes when the frame has left; null for other frames.
  void push(const Frame& frame, std::span<const std::byte> bytes = {},
            std::shared_ptr<WorkSource> source = nullptr);
  /// Queues the frame and gives the link what it takes.
  void send(const Frame& frame) {
    push(frame);
    pump();
  }
  /// Announces a large message (Rts).
  void announce(Tag tag, std::span<const std::byte> bytes, const WorkSource& source);
  /// The peer's Cts begins to send the message, and its Refuse ends the send. False if none was
  /// announced under that id.
  bool answer(const Frame& frame);
  /// Gives the link what it takes; true if anything moved.
  bool pump();
  /// After close(): sends a frame if the link takes it.
  void send_last(const Frame& frame) {
    if (link_ != nullptr) link_->try_send(frame, {});
  }
  /// Drops everything: the Works fail with `error`, and nothing is sent any more.
  void close(const std::exception_ptr& error);

 private:
  struct Queued {
    Frame frame;
    std::span<const std::byte> bytes;
    std::shared_ptr<WorkSource> source;
  };
  struct Announced {
    std::span<const std::byte> bytes;
    WorkSource source;
  };
  struct Stream {
    Piece unclaimed;   // not assigned to a lane yet
    std::size_t left;  // bytes not written yet
    WorkSource source;
  };
  struct Lane {
    Piece piece;
    Stream* stream = nullptr;  // the stream of `piece`; null: the lane is idle
  };

  bool pump_once();
  bool pump_lane(std::size_t lane);
  bool claim(Lane& lane);
  void drop(const Queued& queued);

  Link* link_ = nullptr;
  OpenWorks* open_ = nullptr;
  bool pumping_ = false;
  std::exception_ptr closed_;  // close()'s error
  std::deque<Queued> queue_;
  std::unordered_map<std::uint32_t, Announced> announced_;  // by send id
  std::uint32_t next_id_ = 0;
  std::list<Stream> streams_;
  std::vector<Lane> lanes_;
};

}  // namespace trireme::inline v0::net
