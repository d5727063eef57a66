// One connection of a tcp transport: frames out, frames in, nothing blocks.
//
// A frame is a 24-byte head and its payload. Small frames go through a buffer; the chunks of large
// messages are written from the sender's memory (writev) and read into the receiver's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/net/messenger.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace net {

class TcpLink final : public Link {
 public:
  TcpLink(Messenger& messenger, int peer, Descriptor socket);
  /// Writes what is left for at most a second, so that the last message is not lost.
  ~TcpLink() override;

  bool try_send(const Frame& frame, std::span<const std::byte> payload) override;
  std::size_t try_stream(std::uint32_t id, std::span<const std::byte> rest) override;

  int socket() const noexcept { return socket_.get(); }
  /// Bytes wait for the socket to take them.
  bool blocked() const noexcept { return sent_ < out_.size() || blocked_; }
  /// Writes what it can; true if anything went.
  bool flush();
  /// Reads and handles what has come; sets `ended` with the reason when the peer is gone.
  bool read(const char*& ended);

 private:
  struct Head {
    std::uint8_t kind = 0;
    char magic[3] = {'T', 'R', '1'};
    std::uint32_t id = 0;
    std::uint64_t tag = 0;
    std::uint64_t length = 0;
  };
  static_assert(sizeof(Head) == 24);

  std::ptrdiff_t write_some(const void* head, std::size_t head_bytes,
                            std::span<const std::byte> payload);
  bool handle_buffer(const char*& ended);
  bool handle_frame(const Head& head, const char*& ended);
  void receive_data(std::span<const std::byte> bytes, const char*& ended);
  bool read_data(const char*& ended);
  bool read_buffer(const char*& ended);
  bool received(std::ptrdiff_t count, const char*& ended) const;

  Messenger& messenger_;
  const int peer_;
  Descriptor socket_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;        // of out_
  std::size_t chunk_left_ = 0;  // of the chunk whose head is out
  bool blocked_ = false;        // the last write was refused
  std::vector<std::byte> in_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of in_
  std::uint32_t data_id_ = 0;
  std::size_t data_left_ = 0;  // of the chunk that is coming in
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
