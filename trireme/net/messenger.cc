#include "trireme/net/messenger.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/net/errors.h"

namespace trireme::inline v0::net {
namespace {

constexpr std::size_t cost_of(std::size_t bytes) { return bytes + kMessageCost; }

}  // namespace

// The link to this rank itself; frames arrive at once.
class Messenger::Local final : public Link {
 public:
  explicit Local(Messenger& messenger) : messenger_(messenger) {}
  bool try_send(const Frame& frame, std::span<const std::byte> payload) override {
    const int self = messenger_.rank_;
    if (frame.kind == FrameKind::Eager) {
      messenger_.on_eager(self, {frame.tag}, payload);
    } else {
      messenger_.on_control(self, frame);
    }
    return true;
  }
  std::size_t try_stream(std::size_t, const Piece& piece) override {
    const std::size_t size = piece.rest.size();  // a continuation may end the piece
    messenger_.on_data(messenger_.rank_, piece.id, piece.offset, piece.rest);
    return size;
  }

 private:
  Messenger& messenger_;
};

Messenger::Messenger(int rank, int size, std::shared_ptr<Waiter> waiter, std::vector<int> names)
    : rank_(rank),
      names_(std::move(names)),
      waiter_(std::move(waiter)),
      open_(waiter_),
      peers_(static_cast<std::size_t>(size)),
      local_(std::make_unique<Local>(*this)) {
  attach(rank, local_.get());
}

Messenger::~Messenger() = default;

void Messenger::attach(int peer, Link* link, std::size_t num_lanes) {
  at(peer).out.attach(link, num_lanes, &open_);
}

Work Messenger::send(int peer, Tag tag, std::span<const std::byte> bytes) {
  check_peer(peer, size());
  if (failure_) return Work::failed(failure_);
  Peer& to = at(peer);
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
  const std::uint32_t id = to.next_id++;
  const WorkSource source = open_.begin("send to ", name_of(peer));
  to.sending.emplace(id, Sending{bytes, source});
  queue(peer, {FrameKind::Rts, id, tag.value, bytes.size()});
  return source.work();
}

Work Messenger::recv(int peer, Tag tag, std::span<std::byte> bytes) {
  check_peer(peer, size());
  if (failure_) return Work::failed(failure_);
  Peer& from = at(peer);
  const auto found = std::ranges::find(from.unexpected, tag, &Unexpected::tag);
  if (found == from.unexpected.end()) {
    if (from.gone) return Work::failed(error_of(peer, "recv"));
    from.posted.push_back({tag, bytes, open_.begin("recv from ", name_of(peer))});
    return from.posted.back().source.work();
  }
  Unexpected message = std::move(*found);
  from.unexpected.erase(found);
  const Posted posted{tag, bytes, open_.begin("recv from ", name_of(peer))};
  const Work work = posted.source.work();
  if (message.whole) {
    from.unexpected_cost -= cost_of(message.length);
    deliver(peer, message.bytes, posted);
  } else {
    accept(peer, message.id, message.length, posted);
  }
  return work;
}

std::optional<Messenger::Posted> Messenger::take_posted(Peer& from, Tag tag) {
  const auto found = std::ranges::find(from.posted, tag, &Posted::tag);
  if (found == from.posted.end()) return std::nullopt;
  std::optional<Posted> posted = std::move(*found);
  from.posted.erase(found);
  return posted;
}

// Completes a receive, or fails it if the message has another length.
void Messenger::end(int peer, const Posted& posted, std::size_t sent) {
  const std::size_t expected = posted.bytes.size();
  if (sent == expected) return open_.end(posted.source);
  open_.end(posted.source,
            length_mismatch(name_of(rank_), name_of(peer), posted.tag, expected, sent));
}

// Ends a receive with its eager message and accounts for the room that it frees.
void Messenger::deliver(int peer, std::span<const std::byte> bytes, const Posted& posted) {
  if (!bytes.empty() && bytes.size() == posted.bytes.size())
    std::memcpy(posted.bytes.data(), bytes.data(), bytes.size());
  end(peer, posted, bytes.size());
  make_room(peer, cost_of(bytes.size()));
}

void Messenger::make_room(int peer, std::size_t cost) {
  Peer& from = at(peer);
  from.untold += cost;
  if (from.untold < kRoomBytes || from.gone || failure_) return;
  queue(peer, {FrameKind::Room, 0, 0, std::exchange(from.untold, 0)});
}

void Messenger::accept(int peer, std::uint32_t send_id, std::size_t length, const Posted& posted) {
  if (length == 0 || length != posted.bytes.size()) {  // no data will follow
    queue(peer, {FrameKind::Refuse, send_id, 0, 0});   // completes the send
    return end(peer, posted, length);
  }
  Peer& from = at(peer);
  const std::uint32_t id = from.next_id++;
  from.receiving.emplace(id, Receiving{posted.bytes, 0, posted.source});
  queue(peer, {FrameKind::Cts, send_id, id, 0});
}

void Messenger::queue(int peer, const Frame& frame) {
  at(peer).out.push(frame);
  pump(peer);
}

void Messenger::on_eager(int peer, Tag tag, std::span<const std::byte> payload) {
  Peer& from = at(peer);
  if (failure_ || from.gone) return;
  if (const auto posted = take_posted(from, tag)) return deliver(peer, payload, *posted);
  const std::size_t cost = cost_of(payload.size());
  if (cost > kUnexpectedLimit - from.unexpected_cost)
    return lose(peer, "it sent more than there was room for");
  from.unexpected.push_back(
      {tag, true, 0, payload.size(), std::vector<std::byte>(payload.begin(), payload.end())});
  from.unexpected_cost += cost;
}

void Messenger::on_control(int peer, const Frame& frame) {
  Peer& from = at(peer);
  if (failure_ || from.gone) return;
  if (frame.kind == FrameKind::Room) {
    if (frame.length > from.under_way) return lose(peer, "it made room for more than was sent");
    from.under_way -= frame.length;
    return;
  }
  if (frame.kind == FrameKind::Lost) {
    if (is_name(frame.id)) from.cause = static_cast<int>(frame.id);
    return;
  }
  if (frame.kind == FrameKind::Rts) {
    if (const auto posted = take_posted(from, {frame.tag}))
      return accept(peer, frame.id, frame.length, *posted);
    from.unexpected.push_back({{frame.tag}, false, frame.id, frame.length, {}});
    return;
  }
  const auto sending = from.sending.find(frame.id);
  if (sending == from.sending.end()) return lose(peer, "it answered a message that was not sent");
  const Sending sent = std::move(sending->second);
  from.sending.erase(sending);
  if (frame.kind == FrameKind::Refuse)
    return open_.end(sent.source);  // the receiver reports the error
  from.out.stream(static_cast<std::uint32_t>(frame.tag), sent.bytes, sent.source);
  pump(peer);
}

void Messenger::note_move(int peer) noexcept {
  at(peer).moved.store(waiter_->now().time_since_epoch().count(), std::memory_order_relaxed);
}

TimePoint Messenger::last_moved(int peer) const noexcept {
  return TimePoint(Duration(at(peer).moved.load(std::memory_order_relaxed)));
}

std::byte* Messenger::destination(int peer, std::uint32_t id, std::optional<std::size_t> offset,
                                  std::size_t length) {
  const auto found = at(peer).receiving.find(id);
  if (found == at(peer).receiving.end()) return nullptr;
  const Receiving& receiving = found->second;
  const std::size_t size = receiving.bytes.size(), begin = offset.value_or(receiving.done);
  if (length > size - receiving.done || begin > size || length > size - begin) return nullptr;
  return receiving.bytes.data() + begin;
}

void Messenger::on_data(int peer, std::uint32_t id, std::size_t length) {
  const auto found = at(peer).receiving.find(id);
  if (found == at(peer).receiving.end()) return;
  Receiving& receiving = found->second;
  receiving.done += length;
  if (receiving.done < receiving.bytes.size()) return;
  const WorkSource source = receiving.source;
  at(peer).receiving.erase(found);
  open_.end(source);
}

bool Messenger::on_data(int peer, std::uint32_t id, std::optional<std::size_t> offset,
                        std::span<const std::byte> data) {
  std::byte* const to = destination(peer, id, offset, data.size());
  if (to == nullptr) return aborted();
  std::memcpy(to, data.data(), data.size());
  on_data(peer, id, data.size());
  return true;
}

void Messenger::fail_all(int peer, const std::exception_ptr& send_error,
                         const std::exception_ptr& recv_error) {
  Peer& one = at(peer);
  const auto posted = std::exchange(one.posted, {});
  const auto sending = std::exchange(one.sending, {});
  const auto receiving = std::exchange(one.receiving, {});
  one.out.close(send_error);
  for (const auto& [id, each] : sending) open_.end(each.source, send_error);
  for (const auto& [id, each] : receiving) open_.end(each.source, recv_error);
  for (const auto& each : posted) open_.end(each.source, recv_error);
}

void Messenger::lose(int peer, std::string_view detail) {
  Peer& one = at(peer);
  if (one.gone) return;
  one.gone = true;
  one.detail = detail;
  if (failure_) return;  // abort() has failed everything that was pending
  std::erase_if(one.unexpected, [](const auto& message) { return !message.whole; });
  fail_all(peer, error_of(peer, "send"), error_of(peer, "recv"));
}

std::exception_ptr Messenger::error_of(int peer, std::string_view operation) const {
  const Peer& lost = at(peer);
  const std::string name = std::to_string(name_of(peer));
  if (lost.cause < 0) return peer_lost(name_of(rank_), name_of(peer), operation, lost.detail);
  return peer_lost(name_of(rank_), lost.cause, operation,
                   "rank " + name + " has given up because of it");
}

bool Messenger::is_name(std::uint32_t name) const {
  if (names_.empty()) return name < peers_.size();
  return std::find(names_.begin(), names_.end(), static_cast<int>(name)) != names_.end();
}

// Tells only of a loss that this rank knows of: an error may name a rank of another group.
void Messenger::tell_cause(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    bool known = false;
    for (int peer = 0; peer < size(); ++peer) {
      const Peer& one = at(peer);
      known |= one.cause == lost.peer() || (one.gone && name_of(peer) == lost.peer());
    }
    if (lost.peer() < 0 || !known) return;
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_ && !at(peer).gone)
        at(peer).out.send_last({FrameKind::Lost, static_cast<std::uint32_t>(lost.peer()), 0, 0});
  } catch (...) {
  }
}

void Messenger::abort(const std::exception_ptr& error) noexcept {
  if (failure_) return;
  failure_ = error;
  for (int peer = 0; peer < size(); ++peer) {
    at(peer).unexpected.clear();
    fail_all(peer, error, error);
  }
  tell_cause(error);
}

}  // namespace trireme::inline v0::net
