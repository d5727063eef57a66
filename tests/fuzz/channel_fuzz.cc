// The frames of a Channel whose peer has authenticated and then sends anything: a received frame is
// at most `limit` long, no more memory is allocated, and a broken frame ends the channel.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/poll_waiter.h"
#include "trireme/base/error.h"
#include "trireme/net/channel.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  constexpr std::size_t kLimit = 5000;
  fuzz::Bytes input(data, size);
  const bool structured = (input.byte() & 1) != 0;
  std::vector<std::byte> stream;
  const auto append = [&](const void* from, std::size_t count) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    stream.insert(stream.end(), bytes, bytes + count);
  };
  while (!input.empty()) {
    if (structured) {
      const std::size_t kind = input.byte();
      const net::FrameStart start{.head = input.byte(),
                                  .payload = std::uint64_t{input.byte()} * input.byte(),
                                  .area = kind < 8 ? kind : 0};
      append(&start, sizeof start);
      const auto bytes = input.take(start.head + start.payload);
      append(bytes.data(), bytes.size());
    } else {
      const auto bytes = input.take(size);
      append(bytes.data(), bytes.size());
    }
  }
  const auto waiter = std::make_shared<fuzz::PollWaiter>();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  Descriptor other(ends[1]);
  const auto channel = net::channel_over(waiter, Descriptor(ends[0]), {}, kLimit);
  if (send(other.get(), stream.data(), stream.size(), MSG_NOSIGNAL) < 0 && !stream.empty()) {
    return 0;  // more than the socket takes at once
  }
  other = Descriptor();
  for (;;) {
    net::ChannelFrame frame;
    const Work work = channel->receive(frame);
    waiter->wait_until([&] { return work.done(); }, waiter->now());
    if (!work.done()) std::abort();  // the other end is closed
    if (frame.head().size() + frame.payload().size() > kLimit) std::abort();
    try {
      work.wait();
    } catch (const PeerLost&) {
      break;
    }
  }
  return 0;
}
