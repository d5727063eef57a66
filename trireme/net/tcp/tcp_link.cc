#include "trireme/net/tcp/tcp_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trireme::inline v0::net {

constexpr std::size_t kTcpChunk = std::size_t{1} << 20;
constexpr std::size_t kOutLimit = std::size_t{256} << 10;  // limit of buffered small frames
constexpr std::size_t kInBuffer = std::size_t{64} << 10;
constexpr std::size_t kReadPerPoll = std::size_t{4} << 20;  // per peer, so that none starves
static_assert(kInBuffer >= kEagerLimit + 24);

TcpLink::TcpLink(Messenger& messenger, int peer, Descriptor socket, std::atomic<bool>& unsent)
    : messenger_(messenger),
      peer_(peer),
      socket_(std::move(socket)),
      unsent_(unsent),
      in_(kInBuffer) {}

TcpLink::~TcpLink() {
  for (int attempt = 0; attempt < 10 && sent_ < out_.size() && chunk_left_ == 0; ++attempt) {
    if (flush()) continue;
    pollfd one{socket_.get(), POLLOUT, 0};
    ::poll(&one, 1, 100);
  }
  // If bytes were unread, close() would reset the connection.
  stop_writing();
  while (recv(socket_.get(), in_.data(), in_.size(), MSG_DONTWAIT) > 0) {
  }
}

void TcpLink::stop_writing() noexcept { shutdown(socket_.get(), SHUT_WR); }

// Returns the bytes written; 0 if the socket is full or broken (reading finds out which). The system
// tells the error of a broken socket once, so it is kept for the reader.
std::size_t TcpLink::write_some(std::span<const std::byte> head,
                                std::span<const std::byte> payload) {
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(payload.data()), payload.size()}};
  const ssize_t count = send_parts(socket_.get(), parts);
  if (count < 0 && !may_send_later() && errno != EPIPE) write_error_ = errno;
  blocked_ = count < static_cast<ssize_t>(head.size() + payload.size());
  if (blocked_) unsent_.store(true, std::memory_order_relaxed);
  return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
}

bool TcpLink::flush() {
  blocked_ = false;
  if (sent_ == out_.size()) return false;
  const std::size_t count = write_some({}, std::span(out_).subspan(sent_));
  if (count > 0) messenger_.note_move(peer_);
  sent_ += count;
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  }
  return count > 0;
}

bool TcpLink::try_send(const Frame& frame, std::span<const std::byte> payload) {
  if (chunk_left_ > 0 || out_.size() - sent_ > kOutLimit) return false;
  const Head head{.kind = frame.kind, .id = frame.id, .tag = frame.tag, .length = frame.length};
  const std::span<const std::byte> head_bytes = std::as_bytes(std::span(&head, 1));
  std::size_t written = 0;
  if (out_.empty()) {
    written = write_some(head_bytes, payload);
    if (written == sizeof head + payload.size()) return true;
  }
  if (sent_ > kOutLimit) out_.erase(out_.begin(), out_.begin() + std::exchange(sent_, 0));
  for (const std::span<const std::byte> part : {head_bytes, payload}) {
    const std::size_t skip = std::min(written, part.size());
    out_.insert(out_.end(), part.begin() + static_cast<std::ptrdiff_t>(skip), part.end());
    written -= skip;
  }
  return true;
}

std::size_t TcpLink::try_stream(std::size_t, const Piece& piece) {
  const std::span<const std::byte> rest = piece.rest;
  while (sent_ < out_.size()) {
    if (!flush()) return 0;
  }
  if (chunk_left_ > 0) {
    const std::size_t count = write_some({}, rest.first(std::min(rest.size(), chunk_left_)));
    if (count > 0) messenger_.note_move(peer_);
    chunk_left_ -= count;
    return count;
  }
  const Head head{.kind = FrameKind::Data,
                  .id = piece.id,
                  .tag = piece.offset,
                  .length = std::min(rest.size(), kTcpChunk)};
  const std::span<const std::byte> head_bytes = std::as_bytes(std::span(&head, 1));
  const std::size_t count = write_some(head_bytes, rest.first(head.length));
  if (count == 0) return 0;
  chunk_left_ = head.length;
  if (count < sizeof head) {
    out_.assign(head_bytes.begin() + static_cast<std::ptrdiff_t>(count), head_bytes.end());
    return 0;
  }
  chunk_left_ -= count - sizeof head;
  return count - sizeof head;
}

bool TcpLink::read(const char*& ended) {
  bool moved = false;
  for (std::size_t before = 0; before < kReadPerPoll; before += std::max(kInBuffer, just_read_)) {
    if (!handle_buffer(ended)) return true;
    if (!(data_left_ > 0 ? read_data(ended) : read_buffer(ended))) return moved;
    moved = true;
  }
  handle_buffer(ended);  // no event would report what is left in the buffer
  return true;
}

// Handles all complete frames in the buffer. False if the peer violated the protocol.
bool TcpLink::handle_buffer(const char*& ended) {
  for (;;) {
    const std::size_t available = end_ - begin_;
    if (data_left_ > 0) {
      const std::size_t size = std::min(available, data_left_);
      if (size == 0) return true;
      const std::span<const std::byte> bytes{in_.data() + begin_, size};
      const std::size_t offset = std::exchange(data_offset_, data_offset_ + size);
      begin_ += size;
      data_left_ -= size;
      if (take_data(messenger_, peer_, data_id_, offset, bytes)) continue;
      ended = "it sent data that nobody asked for";
      return false;
    }
    if (available < sizeof(Head)) return true;
    Head head;
    std::memcpy(&head, in_.data() + begin_, sizeof head);
    if (std::memcmp(head.magic, Head().magic, sizeof head.magic) != 0) {
      ended = "it sent something that is no frame";
      return false;
    }
    const bool eager = head.kind == FrameKind::Eager;
    if (eager && head.length > kEagerLimit) {
      ended = "it sent a frame that is too long";
      return false;
    }
    if (eager && available < sizeof head + head.length) return true;
    if (!handle_frame(head, ended)) return false;
  }
}

bool TcpLink::handle_frame(const Head& head, const char*& ended) {
  begin_ += sizeof head;
  if (head.kind == FrameKind::Eager) {
    const std::span<const std::byte> payload{in_.data() + begin_, head.length};
    begin_ += head.length;
    messenger_.on_eager(peer_, {head.tag}, payload);
  } else if (head.kind == FrameKind::Data) {
    data_id_ = head.id;
    data_offset_ = head.tag;
    data_left_ = head.length;
    if (head.length > kTcpChunk) ended = "it sent a chunk that is too long";
  } else if (is_control(head.kind)) {
    messenger_.on_control(peer_, {head.kind, head.id, head.tag, head.length});
  } else {
    ended = "it sent a frame of an unknown kind";
  }
  return ended == nullptr;
}

// Reads directly into the receiver's memory.
bool TcpLink::read_data(const char*& ended) {
  std::byte* const to = messenger_.destination(peer_, data_id_, data_offset_, data_left_);
  if (to == nullptr && !messenger_.aborted()) {
    ended = "it sent data that nobody asked for";
    return false;
  }
  const std::size_t wanted = to != nullptr ? data_left_ : std::min(data_left_, in_.size());
  const auto count = recv(socket_.get(), to != nullptr ? to : in_.data(), wanted, MSG_DONTWAIT);
  if (!received(count, ended)) return false;
  data_offset_ += static_cast<std::size_t>(count);
  data_left_ -= static_cast<std::size_t>(count);
  if (to != nullptr) messenger_.on_data(peer_, data_id_, static_cast<std::size_t>(count));
  return true;
}

bool TcpLink::read_buffer(const char*& ended) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0) {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const auto count = recv(socket_.get(), in_.data() + end_, in_.size() - end_, MSG_DONTWAIT);
  if (!received(count, ended)) return false;
  end_ += static_cast<std::size_t>(count);
  return true;
}

bool TcpLink::received(ssize_t count, const char*& ended) {
  if (count > 0) {
    just_read_ = static_cast<std::size_t>(count);
    messenger_.note_move(peer_);
    return true;
  }
  if (count < 0 && would_block()) return false;
  const int error = count < 0 ? errno : write_error_;
  closed_ = error == 0 || error == ECONNRESET || error == EPIPE;
  ended = error == 0 ? "its process has ended or left the group" : std::strerror(error);
  return false;
}

}  // namespace trireme::inline v0::net
