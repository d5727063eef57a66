#include "trireme/net/outbox.h"

#include <algorithm>
#include <string>
#include <utility>

namespace trireme::inline v0::net {

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // a lane's share

void OpenWorks::count(int change) noexcept {
  count_.store(count_.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
}

WorkSource OpenWorks::begin(const char* what, int peer) {
  count(+1);
  return WorkSource(waiter_, nullptr, what + std::to_string(peer));
}

void OpenWorks::end(const WorkSource& source, const std::exception_ptr& error) {
  count(-1);
  source.settle(error);
}

void Outbox::attach(Link* link, std::size_t num_lanes, OpenWorks* open) {
  link_ = link;
  open_ = open;
  lanes_.resize(num_lanes);
}

bool Outbox::try_send(const Frame& frame, std::span<const std::byte> bytes) {
  return queue_.empty() && link_->try_send(frame, bytes);
}

void Outbox::push(const Frame& frame, std::span<const std::byte> bytes,
                  std::shared_ptr<WorkSource> source) {
  if (!source) open_->count(+1);  // keeps poll() going until the frame has left
  queue_.push_back({frame, bytes, std::move(source)});
}

void Outbox::announce(Tag tag, std::span<const std::byte> bytes, const WorkSource& source) {
  const std::uint32_t id = next_id_++;
  announced_.emplace(id, Announced{bytes, source});
  send({FrameKind::Rts, id, tag.value, bytes.size()});
}

bool Outbox::answer(const Frame& frame) {
  const auto found = announced_.find(frame.id);
  if (found == announced_.end()) return false;
  const Announced message = std::move(found->second);
  announced_.erase(found);
  if (frame.kind == FrameKind::Refuse) {
    open_->end(message.source);  // the receiver reports the error
  } else {
    const auto receive_id = static_cast<std::uint32_t>(frame.tag);
    streams_.push_back({{receive_id, 0, message.bytes}, message.bytes.size(), message.source});
    pump();
  }
  return true;
}

bool Outbox::pump() {
  if (pumping_ || closed_) return false;
  pumping_ = true;
  bool moved = false;
  while (!closed_ && pump_once()) moved = true;
  pumping_ = false;
  return moved;
}

bool Outbox::pump_once() {
  if (!queue_.empty()) {
    // The local link calls back before it returns, so the frame must leave the queue first.
    Queued first = std::move(queue_.front());
    queue_.pop_front();
    if (link_->try_send(first.frame, first.bytes)) {
      first.source ? open_->end(*first.source) : open_->count(-1);
      return true;
    }
    if (closed_) {  // by the link, which has failed
      drop(first);
      return false;
    }
    queue_.push_front(std::move(first));
  }
  bool moved = false;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) moved |= pump_lane(lane);
  return moved;
}

bool Outbox::pump_lane(std::size_t number) {
  Lane& lane = lanes_[number];
  if (!lane.stream && !claim(lane)) return false;
  const std::size_t taken = link_->try_stream(number, lane.piece);
  if (taken == 0 || closed_) return false;  // the local link's continuations may abort
  lane.piece.offset += taken;
  lane.piece.rest = lane.piece.rest.subspan(taken);
  Stream& stream = *lane.stream;
  stream.left -= taken;
  if (lane.piece.rest.empty()) lane.stream = nullptr;
  if (stream.left == 0) {
    const WorkSource source = stream.source;
    streams_.remove_if([&](const Stream& one) { return &one == &stream; });
    open_->end(source);
  }
  return true;
}

// Assigns an idle lane the next piece of the oldest message that has one.
bool Outbox::claim(Lane& lane) {
  for (Stream& stream : streams_) {
    Piece& rest = stream.unclaimed;
    if (rest.rest.empty()) continue;
    const std::size_t size =
        lanes_.size() == 1 ? rest.rest.size() : std::min(rest.rest.size(), kPieceBytes);
    lane = {{rest.id, rest.offset, rest.rest.first(size)}, &stream};
    rest.offset += size;
    rest.rest = rest.rest.subspan(size);
    return true;
  }
  return false;
}

void Outbox::drop(const Queued& queued) {
  queued.source ? open_->end(*queued.source, closed_) : open_->count(-1);
}

void Outbox::close(const std::exception_ptr& error) {
  closed_ = error;
  const auto queued = std::exchange(queue_, {});
  const auto streams = std::exchange(streams_, {});
  const auto announced = std::exchange(announced_, {});
  std::fill(lanes_.begin(), lanes_.end(), Lane());
  for (const Queued& each : queued) drop(each);
  for (const auto& each : streams) open_->end(each.source, error);
  for (const auto& [id, each] : announced) open_->end(each.source, error);
}

}  // namespace trireme::inline v0::net
