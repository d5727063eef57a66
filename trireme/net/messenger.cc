#include "trireme/net/messenger.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/net/errors.h"

namespace trireme::inline v0::net {
namespace {

// The link to this rank itself; frames arrive at once.
class LocalLink final : public Link {
 public:
  explicit LocalLink(Messenger& messenger) : messenger_(messenger) {}
  bool try_send(const Frame& frame, std::span<const std::byte> payload) override {
    const int self = messenger_.rank();
    if (frame.kind == FrameKind::Eager) {
      messenger_.on_eager(self, {frame.tag}, payload);
    } else {
      messenger_.on_control(self, frame);
    }
    return true;
  }
  std::size_t try_stream(std::size_t, const Piece& piece) override {
    const std::size_t size = piece.rest.size();  // a continuation may end the piece
    take_data(messenger_, messenger_.rank(), piece.id, piece.offset, piece.rest);
    return size;
  }

 private:
  Messenger& messenger_;
};

// The error of a receive whose message has `sent` bytes; null if these are as many as it expects.
std::exception_ptr mismatch(const Messenger& messenger, int peer, const Inbox::Receive& receive,
                            std::size_t sent) {
  if (sent == receive.bytes.size()) return nullptr;
  return length_mismatch(messenger.name_of(messenger.rank()), messenger.name_of(peer), receive.tag,
                         receive.bytes.size(), sent);
}

// The rank that `error` names as lost; -1: none.
int lost_rank(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    return lost.peer();
  } catch (...) {
    return -1;
  }
}

}  // namespace

Messenger::Messenger(int rank, int size, std::shared_ptr<Waiter> waiter, std::vector<int> names)
    : rank_(rank),
      names_(std::move(names)),
      waiter_(std::move(waiter)),
      open_(waiter_),
      peers_(static_cast<std::size_t>(size)),
      local_(std::make_unique<LocalLink>(*this)) {
  attach(rank, local_.get());
}

void Messenger::attach(int peer, Link* link, std::size_t num_lanes) {
  peers_[peer].out.attach(link, num_lanes, &open_);
}

Work Messenger::send(int peer, Tag tag, std::span<const std::byte> bytes) {
  check_peer(peer, size());
  if (failure_) return Work::failed(failure_);
  Peer& to = peers_[peer];
  if (to.gone) return Work::failed(error_of(peer, "send"));
  if (bytes.size() <= kEagerLimit && to.under_way + cost_of(bytes.size()) <= kUnexpectedLimit) {
    to.under_way += cost_of(bytes.size());
    const Frame frame{FrameKind::Eager, 0, tag.value, bytes.size()};
    if (to.out.try_send(frame, bytes)) return Work();
    if (failure_) return Work::failed(failure_);  // the link has failed
    auto source = std::make_shared<WorkSource>(open_.begin("send to ", name_of(peer)));
    to.out.push(frame, bytes, source);
    return source->work();
  }
  const WorkSource source = open_.begin("send to ", name_of(peer));
  to.out.announce(tag, bytes, source);
  return source.work();
}

Work Messenger::recv(int peer, Tag tag, std::span<std::byte> bytes) {
  check_peer(peer, size());
  if (failure_) return Work::failed(failure_);
  Peer& from = peers_[peer];
  const auto message = from.in.take_message(tag);
  if (!message && from.gone) return Work::failed(error_of(peer, "recv"));
  Inbox::Receive receive{tag, bytes, open_.begin("recv from ", name_of(peer))};
  const Work work = receive.source.work();
  if (!message) {
    from.in.post(std::move(receive));
  } else if (message->send_id) {
    accept(peer, *message->send_id, message->length, receive);
  } else {
    deliver(peer, message->bytes, receive);
  }
  return work;
}

// Ends a receive with its eager message and accounts for the room that it frees.
void Messenger::deliver(int peer, std::span<const std::byte> bytes, const Inbox::Receive& receive) {
  const bool fits = bytes.size() == receive.bytes.size();
  if (!bytes.empty() && fits) std::memcpy(receive.bytes.data(), bytes.data(), bytes.size());
  open_.end(receive.source, mismatch(*this, peer, receive, bytes.size()));
  Peer& from = peers_[peer];
  from.untold += cost_of(bytes.size());
  if (from.untold < kRoomBytes || from.gone || failure_) return;
  from.out.send({FrameKind::Room, 0, 0, std::exchange(from.untold, 0)});
}

// Answers the announcement of a large message, which this receive gets.
void Messenger::accept(int peer, std::uint32_t send_id, std::size_t length,
                       const Inbox::Receive& receive) {
  Peer& from = peers_[peer];
  if (length > 0 && length == receive.bytes.size())
    return from.out.send({FrameKind::Cts, send_id, from.in.begin(receive), 0});
  from.out.send({FrameKind::Refuse, send_id, 0, 0});  // completes the send; no data will follow
  open_.end(receive.source, mismatch(*this, peer, receive, length));
}

void Messenger::on_eager(int peer, Tag tag, std::span<const std::byte> payload) {
  Peer& from = peers_[peer];
  if (failure_ || from.gone) return;
  if (const auto receive = from.in.take_receive(tag)) return deliver(peer, payload, *receive);
  if (!from.in.keep(tag, payload)) lose(peer, "it sent more than there was room for");
}

void Messenger::on_control(int peer, const Frame& frame) {
  Peer& from = peers_[peer];
  if (failure_ || from.gone) return;
  if (frame.kind == FrameKind::Room) {
    if (frame.length > from.under_way) return lose(peer, "it made room for more than was sent");
    from.under_way -= frame.length;
  } else if (frame.kind == FrameKind::Lost) {
    for (int one = 0; one < size(); ++one)
      if (name_of(one) == static_cast<int>(frame.id)) from.cause = name_of(one);
  } else if (frame.kind == FrameKind::Rts) {
    if (const auto receive = from.in.take_receive({frame.tag}))
      return accept(peer, frame.id, frame.length, *receive);
    from.in.keep({frame.tag}, frame.length, frame.id);
  } else if (!from.out.answer(frame)) {
    lose(peer, "it answered a message that was not sent");
  }
}

void Messenger::note_move(int peer) noexcept {
  peers_[peer].moved.store(waiter_->now().time_since_epoch().count(), std::memory_order_relaxed);
}

TimePoint Messenger::last_moved(int peer) const noexcept {
  return TimePoint(Duration(peers_[peer].moved.load(std::memory_order_relaxed)));
}

void Messenger::on_data(int peer, std::uint32_t id, std::size_t length) {
  if (const auto ended = peers_[peer].in.arrived(id, length)) open_.end(*ended);
}

bool take_data(Messenger& messenger, int peer, std::uint32_t id, std::optional<std::size_t> offset,
               std::span<const std::byte> data) {
  std::byte* const to = messenger.destination(peer, id, offset, data.size());
  if (to == nullptr) return messenger.aborted();
  std::memcpy(to, data.data(), data.size());
  messenger.on_data(peer, id, data.size());
  return true;
}

void Messenger::fail_all(int peer, bool keep_messages, const std::exception_ptr& send_error,
                         const std::exception_ptr& recv_error) {
  const auto receives = peers_[peer].in.close(keep_messages);
  peers_[peer].out.close(send_error);
  for (const WorkSource& each : receives) open_.end(each, recv_error);
}

void Messenger::lose(int peer, std::string_view detail) {
  Peer& one = peers_[peer];
  if (one.gone) return;
  one.gone = true;
  one.detail = detail;
  if (failure_) return;  // abort() has failed everything that was pending
  fail_all(peer, /*keep_messages=*/true, error_of(peer, "send"), error_of(peer, "recv"));
}

std::exception_ptr Messenger::error_of(int peer, std::string_view operation) const {
  const Peer& lost = peers_[peer];
  const std::string name = std::to_string(name_of(peer));
  if (lost.cause < 0) return peer_lost(name_of(rank_), name_of(peer), operation, lost.detail);
  return peer_lost(name_of(rank_), lost.cause, operation,
                   "rank " + name + " has given up because of it");
}

void Messenger::abort(const std::exception_ptr& error) noexcept {
  if (failure_) return;
  failure_ = error;
  for (int peer = 0; peer < size(); ++peer) fail_all(peer, /*keep_messages=*/false, error, error);
  // Tells only of a loss that this rank knows of: an error may name a rank of another group.
  const int lost = lost_rank(error);
  bool known = false;
  for (int peer = 0; lost >= 0 && peer < size(); ++peer)
    known |= peers_[peer].cause == lost || (peers_[peer].gone && name_of(peer) == lost);
  for (int peer = 0; known && peer < size(); ++peer)
    if (peer != rank_ && !peers_[peer].gone)
      peers_[peer].out.send_last({FrameKind::Lost, static_cast<std::uint32_t>(lost), 0, 0});
}

}  // namespace trireme::inline v0::net
