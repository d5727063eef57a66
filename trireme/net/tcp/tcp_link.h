// One connection of a tcp transport; never blocks, except in the destructor. A pair of ranks may
// have several connections; each is then a lane of the Link to the peer (tcp_transport.cc).
//
// A frame is a 24-byte head and its payload. Small frames go through a buffer. Chunks of large
// messages are written from the sender's memory (writev) and read into the receiver's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/net/messenger.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

class TcpLink final : public Link {
 public:
  /// Sets `unsent` if bytes wait for the socket. `messenger` and `unsent` outlive the link.
  TcpLink(Messenger& messenger, int peer, Descriptor socket, std::atomic<bool>& unsent);
  /// Writes the buffered frames, for at most a second, so that the last message is not lost.
  ~TcpLink() override;

  bool try_send(const Frame& frame, std::span<const std::byte> payload) override;
  std::size_t try_stream(std::size_t lane, const Piece& piece) override;

  int socket() const noexcept { return socket_.get(); }
  /// True if bytes wait until the socket can take them.
  bool blocked() const noexcept { return sent_ < out_.size() || blocked_; }
  /// Writes what the socket takes; true if any bytes were written.
  bool flush();
  /// Reads and handles what has arrived. Sets `ended` to the reason if the peer is gone.
  bool read(const char*& ended);
  /// True if `ended` means that the peer closed, not a protocol violation or a network failure.
  bool closed() const noexcept { return closed_; }
  /// Nothing more will be written; the peer reads the end of the stream after what was written.
  void stop_writing() noexcept;

 private:
  struct Head {
    FrameKind kind{};
    char magic[3] = {'T', 'R', '1'};
    std::uint32_t id = 0;
    std::uint64_t tag = 0;  // Data: the chunk's offset in the message
    std::uint64_t length = 0;
  };
  static_assert(sizeof(Head) == 24);

  std::size_t write_some(std::span<const std::byte> head, std::span<const std::byte> payload);
  bool handle_buffer(const char*& ended);
  bool handle_frame(const Head& head, const char*& ended);
  bool read_data(const char*& ended);
  bool read_buffer(const char*& ended);
  bool received(ssize_t count, const char*& ended);

  Messenger& messenger_;
  const int peer_;
  Descriptor socket_;
  std::atomic<bool>& unsent_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;        // bytes of out_ already written
  std::size_t chunk_left_ = 0;  // bytes left of the chunk whose head has been written
  bool blocked_ = false;        // the last write was refused
  std::vector<std::byte> in_;
  std::size_t begin_ = 0, end_ = 0;  // the unread bytes of in_
  std::size_t just_read_ = 0;        // bytes that the last read has brought
  std::uint32_t data_id_ = 0;
  std::size_t data_offset_ = 0;  // position in the message
  std::size_t data_left_ = 0;    // bytes left of the chunk that is being read
  bool closed_ = false;
  int write_error_ = 0;  // errno of the write that failed
};

}  // namespace trireme::inline v0::net
